"""Train the model of a job file: ``python jobs/train.py conf/letter.yaml``."""

from __future__ import annotations

from dataclasses import fields

import click

from dkfeat.cli import DkfeatCommand
from dkfeat.cli.jobs import load_job, open_runs
from dkfeat.cli.options.storage import resolve_options
from dkfeat.engine.open import Target
from dkfeat.filesystems.urls import is_url
from dkfeat.learn.model_files import check_target
from dkfeat.learn.train import train


@click.command("train", cls=DkfeatCommand)
@click.argument("conf")
def main(conf: str) -> None:
    """Run the `train` part of the job file CONF.

    The exit status is that of the dkfeat command.
    """
    job = load_job(conf, needs="train")
    options = {item.name: getattr(job.train, item.name) for item in fields(job.train)}
    shards, out, resume = (options.pop(name) for name in ("shards", "out", "resume"))
    if options["checkpoint"] is not None:
        options["checkpoint"] = Target(options["checkpoint"], resume=resume)
    of_store = resolve_options(options["storage_options"], "train.storage_options")
    options["storage_options"] = of_store if is_url(shards) else None
    if out is not None:
        check_target(out, of_store, job.train.checkpoint)  # fails before the training, not after
    in_parts = getattr(job.train.solver, "parts", None) is not None
    with open_runs(job.run, [job.train]) as parts:
        for _, run in parts:
            model = train(shards, **options, client=run if in_parts else None, progress=run.progress)
    if out is not None:
        model.save(out, storage_options=of_store)
        print(f"{out}: model of {len(model.classes)} classes" if len(model.classes) else f"{out}: regression")
    last = next(entry for entry in model.history if entry["epoch"] == model.training["epoch"])
    if last.get("test_accuracy") is not None:
        print(f"test accuracy {last['test_accuracy']:.2%}")
    elif last.get("test_r2") is not None:
        print(f"test R² {last['test_r2']:.4f}")


if __name__ == "__main__":
    main()
