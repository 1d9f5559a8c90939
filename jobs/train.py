"""Train what a job file asks for: ``python jobs/train.py conf/letter.yaml``."""

from __future__ import annotations

import click

from dkfeat.cli import DkfeatCommand
from dkfeat.cli._run_options import PLACE_PARAMETERS
from dkfeat.cli._storage import resolve_options
from dkfeat.cli.build import load_job, run_settings
from dkfeat.io.remote import is_url
from dkfeat.learn.model_files import check_target
from dkfeat.learn.sgd import train


@click.command("train", cls=DkfeatCommand)
@click.argument("conf")
def main(conf: str) -> None:
    """Run the `train` part of the job file CONF.

    The exit status is that of the dkfeat command.
    """
    job = load_job(conf, needs="train")
    options = job.train.to_mapping()
    shards, out = options.pop("shards"), options.pop("out")
    of_store = resolve_options(options["storage_options"], "train.storage_options")
    options["storage_options"] = of_store if is_url(shards) else None
    if out is not None:
        check_target(out, of_store)  # before the work, not after
    with run_settings(job.run) as runs:
        if job.train.parts is not None:
            where = next(runs)
            options |= {name: where[name] for name in PLACE_PARAMETERS}
        model = train(shards, **options, progress=job.run.progress)
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
