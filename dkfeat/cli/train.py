"""``dkfeat train``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from dkfeat.cli._group import DkfeatCommand, log_of
from dkfeat.cli._help import TOLD, heading
from dkfeat.cli._output import is_quiet, output_options, summary
from dkfeat.cli._run_options import SCHEDULERS, cluster, performance_report, scheduler_file
from dkfeat.cli._storage import parse_options, storage_option
from dkfeat.cli._values import Choice, Numbers

__all__ = ["train"]

LOSSES = ("squared_hinge", "hinge", "log_loss", "squared_error", "huber")


@click.command(cls=DkfeatCommand)
@click.argument("shards")
@heading("Rows that are held out")
@click.option("--test", metavar="DIR", help="Shards that are scored only, made with --like SHARDS.")
@click.option("--validation", metavar="DIR", help="Shards that choose among alphas, losses and epochs.")
@click.option(
    "--validation-fraction",
    type=float,
    help="Instead: the share of the rows held out for that.  [default: 0.1 if there is something to choose]",
)
@click.option("--refit", is_flag=True, help="Train what they chose once more, on all rows.")
@heading("The model")
@click.option("--out", metavar="MODEL", help="Folder to save the model in.")
@click.option(
    "--task",
    type=Choice(["auto", "classification", "regression"]),
    default="auto",
    show_default=True,
    help="What labels are; auto: classes, unless the loss is one for regression.",
)
@click.option(
    "--loss",
    type=Choice(LOSSES),
    multiple=True,
    help="May be given several times; the last two are for regression.  [default: squared_hinge, or squared_error]",
)
@click.option(
    "--class-weight",
    metavar="LABEL=WEIGHT",
    multiple=True,
    help="How much rows of a class count, may be given several times; or once: balanced.",
)
@click.option(
    "--solver",
    type=Choice(["sgd", "liblinear"]),
    default="sgd",
    show_default=True,
    help="Shard by shard, or to the optimum with all features in memory.",
)
@heading("Solver sgd")
@click.option(
    "--alpha",
    type=float,
    multiple=True,
    help="Strength of the l2 penalty; several are trained at once, the best is kept.  [default: 1e-6]",
)
@click.option("--epochs", type=click.IntRange(min=1), help="Passes over the shards.  [default: by number of rows]")
@click.option(
    "--patience", type=click.IntRange(min=1), help="Stop after so many epochs without a better held-out score."
)
@click.option("--average/--no-average", default=True, show_default=True, help="Average the weights over all steps.")
@click.option("--shuffle-rows", type=click.IntRange(min=1), help="Rows mixed in memory.  [default: 64 MiB of them]")
@click.option("--loaders", type=click.IntRange(min=1), default=1, help="Shards read at once.  [default: 1]")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the order of rows and of those held out.")
@heading("Solver liblinear")
@click.option("--C", "C", type=Numbers(float), help="Weights of the losses to try.  [default: 0.01,0.1,1,10,100]")
@heading("Interrupted runs")
@click.option("--checkpoint", metavar="DIR", help="Save the state here every 30 s, and go on from it.")
@click.option("--resume/--no-resume", default=True, help="Go on from the checkpoint, or begin anew.  [default: resume]")
@heading("Training in parts")
@click.option("--parts", type=click.IntRange(min=1), help="Train on so many parts side by side, averaged each epoch.")
@click.option("--scheduler", type=SCHEDULERS, help="Where parts run: threads, synchronous, cluster or an address.")
@scheduler_file
@cluster
@click.option("--n-workers", type=click.IntRange(min=1), help="Where parts run: so many processes, or threads.")
@click.option("--threads-per-worker", type=click.IntRange(min=1), help="Threads in each worker process.")
@click.option("--memory-limit", help="Memory of a worker process, as in 4GiB.")
@performance_report
@heading("Store")
@storage_option("A setting of the store, of shards at a URL")
@heading(TOLD)
@click.option("--progress/--no-progress", default=True, help="Report each epoch on standard error.")
@output_options
@click.pass_context
def train(
    ctx: click.Context,
    /,
    shards: str,
    out: str | None,
    loss: tuple[str, ...],
    alpha: tuple[float, ...],
    class_weight: tuple[str, ...],
    seed: int,
    storage_options: tuple[str, ...],
    progress: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Train a linear model on the shards in folder SHARDS.

    Rows are read shard by shard, so the data need not fit in memory. Labels are
    classes, lists of classes, or numbers (--task regression).

    For example:
      dkfeat train features/train --test features/test --out model
      dkfeat train features/train --loss log_loss --epochs 5 --out model
      dkfeat train features/train --alpha 1e-6 --alpha 1e-5 --out model
      dkfeat train features/train --n-workers 4 --out model
      dkfeat train features/train --solver liblinear --C 0.01,1,100 --out model
    """
    from dkfeat.io.remote import is_url
    from dkfeat.learn.model_files import check_target
    from dkfeat.learn.sgd import train as run

    weights = _class_weight(class_weight)  # before the work, not after
    of_store = parse_options(storage_options, "--storage-option")
    if out is not None:
        check_target(out, of_store)
    model = run(
        shards,
        loss=loss or None,
        alpha=alpha or None,
        class_weight=weights,  # type: ignore[arg-type]  # its text is "balanced"
        random_state=seed,
        storage_options=of_store if is_url(shards) else None,
        progress=progress and not is_quiet(ctx) and (_teller(ctx) or True),
        **options,
    )
    last = next(entry for entry in model.history if entry["epoch"] == model.training.get("epoch", len(model.history)))
    shown = {"rows": f"{last['rows']:,}", "task": model.task}
    if model.task != "regression":
        shown["classes"] = f"{len(model.classes):,}"
    shown["epochs"] = f"{len(model.history):,}"
    if "grid" in model.training:
        name = "C" if "C" in model.training else "alpha"
        shown["chosen"] = f"{model.training['loss']}, {name} {model.training[name]:g}"
    for part in ("validation", "test"):
        for name, form in (("accuracy", ".2%"), ("r2", ".4f")):
            if last.get(f"{part}_{name}") is not None:
                shown[f"{part}_{name}"] = format(last[f"{part}_{name}"], form)
    if out is not None:
        model.save(out, storage_options=of_store)
    known = {
        "model": out,
        "task": model.task,
        "rows": last["rows"],
        "classes": len(model.classes),
        "epochs": len(model.history),
        "training": dict(model.training),
        "scores": {name: value for name, value in last.items() if name.startswith(("validation_", "test_"))},
    }
    summary(known, shown | {"model": out or "not saved; give --out MODEL to keep it"}, as_json=as_json)


def _class_weight(given: tuple[str, ...]) -> str | dict[str, float] | None:
    """Read what --class-weight was given."""
    if given == ("balanced",):
        return "balanced"
    weights = {}
    for item in given:
        label, _, weight = item.partition("=")
        try:
            weights[label] = float(weight)
        except ValueError:
            message = f"--class-weight {item}: expected LABEL=WEIGHT such as 1=2.5, or balanced alone"
            raise click.UsageError(message) from None
    return weights or None


def _teller(ctx: click.Context) -> Callable[[Mapping[str, Any]], None] | None:
    """Return what tells an epoch as a line of JSON, where those are asked for."""
    log = log_of(ctx)
    return None if log is None else lambda entry: log("epoch", **entry)
