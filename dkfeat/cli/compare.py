"""``dkfeat compare``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from dkfeat.cli._group import DkfeatCommand, log_of
from dkfeat.cli._help import TOLD, heading
from dkfeat.cli._options import make_source, source_options
from dkfeat.cli._output import as_object, is_quiet, note, output_options
from dkfeat.cli._parquet_options import parquet_options
from dkfeat.cli._storage import storage_option
from dkfeat.cli._values import LOCAL_FOLDER, Choice, Numbers

if TYPE_CHECKING:
    from dkfeat.learn.comparison import Result

__all__ = ["compare"]


@click.command(cls=DkfeatCommand)
@click.argument("source", nargs=-1, required=True)
@heading("What is compared")
@click.option("--test", multiple=True, metavar="SOURCE2", help="Rows to test on.  [default: a part of SOURCE, by seed]")
@click.option(
    "--maps",
    default="gcws,nrff,nystroem-gmm,nystroem-rbf",
    show_default=True,
    help="Feature maps; rff is another one.",
)
@click.option("--k", type=Numbers(int), default="32,64,128,256,512,1024", show_default=True, help="Components.")
@click.option(
    "--C", "grid", type=Numbers(float), default="0.01,0.1,1,10,100", show_default=True, help="C of LIBLINEAR."
)
@click.option(
    "--gamma",
    type=Numbers(float),
    default="0.1,0.3,1,3,10,30,100,300",
    show_default=True,
    help="Widths of the RBF kernel.",
)
@click.option(
    "--loss",
    type=Choice(["squared_hinge", "hinge", "log_loss"]),
    default="squared_hinge",
    show_default=True,
    help="Linear SVM or logistic regression.",
)
@click.option("--linear/--no-linear", default=True, show_default=True, help="Also a linear model on the raw rows.")
@click.option("--exact/--no-exact", default=None, help="Also exact kernel machines.  [default: up to 3,000 rows]")
@click.option("--within", type=float, default=0.5, show_default=True, help="Points that a cheaper map may be worse.")
@click.option(
    "--validation-fraction",
    type=float,
    default=0.1,
    show_default=True,
    help="Share of the training rows that is held out to choose.",
)
@click.option(
    "--test-fraction", type=float, default=0.25, show_default=True, help="Share of SOURCE to test on, without --test."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of maps and parts.")
@heading("Report")
@click.option("--out", type=LOCAL_FOLDER, metavar="DIR", help="Folder for tables, plot and results to resume from.")
@click.option(
    "--output",
    type=Choice(["text", "json", "csv"]),
    default="text",
    show_default=True,
    help="Form of the table; --json is short for --output json.",
)
@source_options
@parquet_options
@storage_option()
@heading(TOLD)
@click.option("--progress/--no-progress", default=True, help="Report each result on standard error.")
@output_options
@click.pass_context
def compare(
    ctx: click.Context,
    /,
    source: tuple[str, ...],
    test: tuple[str, ...],
    maps: str,
    k: tuple[int, ...],
    grid: tuple[float, ...],
    gamma: tuple[float, ...],
    loss: str,
    linear: bool,
    exact: bool | None,
    within: float,
    validation_fraction: float,
    test_fraction: float,
    seed: int,
    out: str | None,
    output: str,
    progress: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Compare feature maps on the rows of SOURCE and recommend one.

    A linear model is trained on the features of each map and size. A part of
    the training rows is held out; it chooses C, gamma of RBF kernels, and the
    recommendation: the cheapest map, by bytes and then by time a row, of those
    within half a point of the best. Test rows choose nothing and judge. All rows
    are held in memory.

    Run the same command with --out again to go on after an interruption.

    For example:
      dkfeat compare train.svm --test test.svm --out comparison
      dkfeat compare train.svm --maps gcws,nrff --k 128,512 --C 1,10
    """
    from dkfeat.learn.compare import compare as run

    comparison = run(
        make_source(source, options),
        test=make_source(test, options) if test else None,
        maps=[name.strip() for name in maps.split(",")],
        k=k,
        C=grid,
        gamma=gamma,
        loss=loss,  # type: ignore[arg-type]  # click.Choice lets only these through
        linear=linear,
        exact="auto" if exact is None else exact,
        within=within / 100,
        validation_fraction=validation_fraction,
        test_fraction=test_fraction,
        random_state=seed,
        out=out,
        progress=progress and not is_quiet(ctx) and (_teller(ctx) or True),
    )
    if as_json or output == "json":
        as_object(comparison.to_mapping())
    elif not is_quiet(ctx) or output == "csv":
        click.echo(comparison.to_csv() if output == "csv" else comparison.to_text(), nl=False)
    if out is not None:
        note(f"tables and plot are in {out}", err=True)


def _teller(ctx: click.Context) -> Callable[[Result], None] | None:
    """Return what tells a result as a line of JSON, where those are asked for."""
    log = log_of(ctx)
    return None if log is None else lambda result: log("result", message=result.describe())
