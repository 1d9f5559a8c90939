"""``dkfeat evaluate``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dkfeat.cli.commands.predict import rows_given
from dkfeat.cli.group import DkfeatCommand, heading
from dkfeat.cli.options.from_settings import LOCAL_FOLDER, option_of
from dkfeat.cli.options.shared import execution_options, output_options, run_arguments, source_options
from dkfeat.cli.output import answer, echo, facts, is_quiet, table
from dkfeat.config import EvaluateConfig

if TYPE_CHECKING:
    from dkfeat.learn.evaluate.result import Evaluation


CLASSES_SHOWN, ERRORS_SHOWN = 30, 5


@click.command(cls=DkfeatCommand)
@click.argument("model")
@click.argument("source", nargs=-1, required=True)
@heading("Report")
@option_of(EvaluateConfig, "out", type=LOCAL_FOLDER, metavar="DIR")
@source_options
@execution_options
@output_options
@click.pass_context
def evaluate(ctx: click.Context, /, model: str, source: tuple[str, ...], out: str | None, **options: Any) -> None:
    """Evaluate a model on the labels of SOURCE.

    SOURCE is text, Parquet or shards with labels, or predictions that `dkfeat
    predict` made with this model. Memory does not grow with the rows.

    For example:
      dkfeat evaluate model features/test --out report
      dkfeat evaluate model test.svm.xz --json
      dkfeat evaluate model predictions
    """
    from dkfeat.learn.evaluate.evaluate import evaluate as run
    from dkfeat.learn.model.model import load_model
    from dkfeat.plot.style import check_plots

    if out is not None:
        check_plots()  # before the work, not after
    rows = rows_given(ctx, source, options)
    loaded = load_model(model, storage_options=options["storage_options"])
    found = run(loaded, rows, **run_arguments(ctx, options))
    if out is not None:
        found.save(out, f"{model} on {', '.join(source)}")
    answer(found.to_mapping())
    if is_quiet():
        return
    _show(found)
    if out is not None:
        facts(report=f"{out}/evaluation.html")


def _show(found: Evaluation) -> None:
    unknown = {"rows of unknown label": f"{found.n_unknown:,}, left out"} if found.n_unknown else {}
    facts(rows=f"{found.n_rows:,}", **unknown, **{name: f"{value:.4f}" for name, value in found.summary.items()})
    known = found.to_mapping()
    if known["per_class"]:
        echo()
        rows: list[tuple[str, ...]] = [("class", "precision", "recall", "f1", "rows")]
        for entry in known["per_class"][:CLASSES_SHOWN]:
            rates = (f"{entry[name]:.4f}" for name in rows[0][1:4])
            rows.append((str(entry["label"]), *rates, f"{entry['support']:,}"))
        table(rows, right=range(5))
        if len(known["per_class"]) > CLASSES_SHOWN:
            echo(f"… and {len(known['per_class']) - CLASSES_SHOWN:,} more, see --json")
    wrong = [cell for cell in known["confusion"] if cell["label"] != cell["prediction"]]
    if wrong:
        echo()
        for cell in wrong[:ERRORS_SHOWN]:
            echo(f"{cell['label']} taken for {cell['prediction']}: {cell['rows']:,} rows")
