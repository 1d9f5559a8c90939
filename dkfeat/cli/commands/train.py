"""``dkfeat train``: a linear model trained on shards."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from dkfeat.cli.group import DkfeatCommand, heading
from dkfeat.cli.options.declared import option_of, options_of
from dkfeat.cli.options.shared import execution_options, make_solver, output_options, progress_of
from dkfeat.cli.options.storage import options_at, storage_option
from dkfeat.cli.options.types import Choice, numbers
from dkfeat.cli.output import summary
from dkfeat.config import ExecutionConfig
from dkfeat.config.train import C_TEXT, CLASS_LOSSES, REAL_LOSSES, SGD, Liblinear, TrainConfig


@click.command(cls=DkfeatCommand)
@click.argument("shards")
@heading("Test and validation")
@option_of(TrainConfig, "test", metavar="DIR")
@option_of(TrainConfig, "validation", metavar="DIR")
@options_of(SGD, "validation_fraction", "refit")
@heading("Model")
@option_of(TrainConfig, "out", metavar="MODEL")
@option_of(SGD, "task")
@option_of(SGD, "loss", type=Choice(CLASS_LOSSES + REAL_LOSSES), multiple=True)
@click.option(
    "--class-weight",
    metavar="LABEL=WEIGHT",
    multiple=True,
    help="Weight of the rows of a class; repeatable. Or balanced, given once.",
)
@click.option(
    "--solver",
    type=Choice(["sgd", "liblinear"]),
    default="sgd",
    show_default=True,
    help="sgd reads shard by shard; liblinear finds the optimum with all features in memory.",
)
@heading("Solver sgd")
@options_of(SGD, "alpha", "epochs", "patience", "average", "shuffle_rows", "loaders")
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Seed of the order of rows and of the rows held out."
)
@heading("Solver liblinear")
@option_of(Liblinear, "C", "--C", type=numbers(float, "0.01,1,100"), multiple=False, default=C_TEXT)
@heading("Interrupted runs")
@option_of(TrainConfig, "checkpoint", metavar="DIR")
@option_of(TrainConfig, "resume")
@heading("Parallel training")
@option_of(SGD, "parts")
@partial(execution_options, in_flight=False)
@heading("Store")
@storage_option("SHARDS and --out")
@output_options
@click.pass_context
def train(
    ctx: click.Context,
    /,
    shards: str,
    out: str | None,
    solver: str,
    class_weight: tuple[str, ...],
    seed: int,
    storage_options: dict[str, Any] | None,
    progress: bool,
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
    from dkfeat.engine.open import Target
    from dkfeat.learn.model_files import check_target
    from dkfeat.learn.train import train as run

    options["class_weight"] = _class_weight(class_weight)
    state, resume = options.pop("checkpoint"), options.pop("resume")
    if out is not None:
        check_target(out, storage_options, state)
    model = run(
        shards,
        make_solver(solver, options),
        checkpoint=None if state is None else Target(state, resume=resume),
        random_state=seed,
        storage_options=options_at(shards, storage_options),
        progress=progress_of(ctx, lambda log: lambda entry: log("epoch", **entry), wanted=progress),
        **ExecutionConfig.gather(options),
    )
    last = next(entry for entry in model.history if entry["epoch"] == model.training.get("epoch", len(model.history)))
    classes = {} if model.task == "regression" else {"classes": f"{len(model.classes):,}"}
    shown = {"rows": f"{last['rows']:,}", "task": model.task, **classes, "epochs": f"{len(model.history):,}"}
    if "grid" in model.training:
        name = "C" if "C" in model.training else "alpha"
        shown["chosen"] = f"{model.training['loss']}, {name} {model.training[name]:g}"
    for part in ("validation", "test"):
        for name, form in (("accuracy", ".2%"), ("r2", ".4f")):
            if last.get(f"{part}_{name}") is not None:
                shown[f"{part}_{name}"] = format(last[f"{part}_{name}"], form)
    if out is not None:
        model.save(out, storage_options=storage_options)
    record = {
        "model": out,
        "task": model.task,
        "rows": last["rows"],
        "classes": len(model.classes),
        "epochs": len(model.history),
        "training": dict(model.training),
        "scores": {name: value for name, value in last.items() if name.startswith(("validation_", "test_"))},
    }
    summary(record, shown | {"model": out or "not saved; give --out MODEL to keep it"})


def _class_weight(given: tuple[str, ...]) -> str | dict[str, float] | None:
    """Parse the values of --class-weight."""
    if given == ("balanced",):
        return "balanced"
    weights: dict[str, float] = {}
    for item in given:
        label, _, weight = item.partition("=")
        if label in weights:
            raise click.UsageError(f"--class-weight gives the label {label} twice; give each label one weight")
        try:
            weights[label] = float(weight)
        except ValueError:
            raise click.UsageError(
                f"--class-weight {item}: expected LABEL=WEIGHT such as 1=2.5, or balanced alone"
            ) from None
    return weights or None
