"""``dkfeat train``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from dkfeat.cli._group import DkfeatCommand, log_of
from dkfeat.cli._show import facts
from dkfeat.cli._storage import parse_options, storage_option

__all__ = ["train"]


@click.command(cls=DkfeatCommand)
@click.argument("shards")
@click.option("--test", metavar="DIR", help="Held-out shards, made with --like SHARDS.")
@click.option("--out", metavar="MODEL", help="Folder to save the model in.")
@click.option(
    "--loss",
    type=click.Choice(["hinge", "log_loss"]),
    default="hinge",
    show_default=True,
    help="Linear SVM or logistic regression.",
)
@click.option("--alpha", type=float, help="Strength of the l2 penalty.  [default: 1e-6]")
@click.option("--epochs", type=click.IntRange(min=1), help="Passes over the shards.  [default: by number of rows]")
@click.option("--average/--no-average", default=True, show_default=True, help="Average the weights over all steps.")
@click.option("--shuffle-rows", type=click.IntRange(min=1), help="Rows mixed in memory.  [default: 64 MiB of them]")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the order of rows.")
@storage_option("A setting of the store, of shards at a URL")
@click.option("--progress/--no-progress", default=True, help="Report each epoch on standard error.")
@click.pass_context
def train(
    ctx: click.Context,
    /,
    shards: str,
    test: str | None,
    out: str | None,
    loss: str,
    alpha: float | None,
    epochs: int | None,
    average: bool,
    shuffle_rows: int | None,
    seed: int,
    storage_options: tuple[str, ...],
    progress: bool,
) -> None:
    """Train a linear classifier on the shards in folder SHARDS.

    Rows are read shard by shard, so the data need not fit in memory.

    For example:
      dkfeat train features/train --test features/test --out model
      dkfeat train features/train --loss log_loss --epochs 5 --out model
    """
    from dkfeat.learn.model_files import check_target
    from dkfeat.learn.sgd import train as run

    if out is not None:
        check_target(out)  # before the work, not after
    model = run(
        shards,
        test=test,
        loss=loss,  # type: ignore[arg-type]  # click.Choice lets only the two through
        alpha=alpha,
        epochs=epochs,
        average=average,
        shuffle_rows=shuffle_rows,
        random_state=seed,
        storage_options=parse_options(storage_options, "--storage-option"),
        progress=progress and (_teller(ctx) or True),
    )
    last = model.history[-1]
    shown = {"rows": f"{last['rows']:,}", "classes": f"{len(model.classes):,}", "epochs": f"{last['epoch']:,}"}
    if last.get("test_accuracy") is not None:
        shown["test_accuracy"] = f"{last['test_accuracy']:.2%}"
    if out is not None:
        model.save(out)
    facts(**shown, model=out or "not saved; give --out MODEL to keep it")


def _teller(ctx: click.Context) -> Callable[[Mapping[str, Any]], None] | None:
    """Return what tells an epoch as a line of JSON, where those are asked for."""
    log = log_of(ctx)
    return None if log is None else lambda entry: log("epoch", **entry)
