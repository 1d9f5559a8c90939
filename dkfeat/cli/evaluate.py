"""``dkfeat evaluate``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dkfeat.cli._group import DkfeatCommand
from dkfeat.cli._help import heading
from dkfeat.cli._options import source_options
from dkfeat.cli._output import as_object, is_quiet, output_options
from dkfeat.cli._parquet_options import parquet_options
from dkfeat.cli._run_options import run_arguments, where_options
from dkfeat.cli._show import facts
from dkfeat.cli._storage import parse_options, storage_option
from dkfeat.cli._values import LOCAL_FOLDER
from dkfeat.cli.predict import rows_given

if TYPE_CHECKING:
    from dkfeat.learn.evaluation import Evaluation

__all__ = ["evaluate"]

CLASSES_SHOWN, ERRORS_SHOWN = 30, 5


@click.command(cls=DkfeatCommand)
@click.argument("model")
@click.argument("source", nargs=-1, required=True)
@heading("Report")
@click.option(
    "--out", type=LOCAL_FOLDER, metavar="DIR", help="Folder for plots, evaluation.json and one page, evaluation.html."
)
@source_options
@storage_option()
@parquet_options
@where_options
@output_options
@click.pass_context
def evaluate(
    ctx: click.Context, /, model: str, source: tuple[str, ...], out: str | None, as_json: bool, **options: Any
) -> None:
    """Tell how well a model predicts the labels of SOURCE.

    SOURCE is text, Parquet or shards with labels, or what `dkfeat predict` wrote
    for this model. Memory does not grow with the rows.

    For example:
      dkfeat evaluate model features/test --out report
      dkfeat evaluate model test.svm.xz --json
      dkfeat evaluate model predictions
    """
    from dkfeat.learn.evaluate import evaluate as run
    from dkfeat.learn.model import load_model
    from dkfeat.report.figures import check_plots

    if out is not None:
        check_plots()  # before the work, not after
    rows = rows_given(ctx, source, options)
    loaded = load_model(model, storage_options=parse_options(options["storage_options"], "--storage-option"))
    found = run(loaded, rows, **run_arguments(ctx, options))
    if out is not None:
        found.save(out, f"{model} on {', '.join(source)}")
    if as_json:
        as_object(found.to_mapping())
        return
    if is_quiet(ctx):
        return
    _show(found)
    if out is not None:
        facts(report=f"{out}/evaluation.html")


def _show(found: Evaluation) -> None:
    unknown = {"rows of unknown label": f"{found.n_unknown:,}, left out"} if found.n_unknown else {}
    facts(rows=f"{found.n_rows:,}", **unknown, **{name: f"{value:.4f}" for name, value in found.summary.items()})
    known = found.to_mapping()
    if known["per_class"]:
        click.echo()
        width = max(5, *(len(str(entry["label"])) for entry in known["per_class"][:CLASSES_SHOWN]))
        click.echo(f"{'class':>{width}}  precision  recall      f1     rows")
        for entry in known["per_class"][:CLASSES_SHOWN]:
            rates = f"{entry['precision']:9.4f}  {entry['recall']:6.4f}  {entry['f1']:6.4f}"
            click.echo(f"{entry['label']:>{width}}  {rates}  {entry['support']:7,}")
        if len(known["per_class"]) > CLASSES_SHOWN:
            click.echo(f"… and {len(known['per_class']) - CLASSES_SHOWN:,} more, see --json")
    wrong = [cell for cell in known["confusion"] if cell["label"] != cell["prediction"]]
    if wrong:
        click.echo()
        for cell in wrong[:ERRORS_SHOWN]:
            click.echo(f"{cell['label']} taken for {cell['prediction']}: {cell['rows']:,} rows")
