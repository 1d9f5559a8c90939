"""``dkfeat predict`` and ``dkfeat evaluate``: predict for rows with a model, and evaluate it on labelled rows."""

from __future__ import annotations

import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dkfeat.cli.declared import LOCAL_FOLDER, given_flags, option_of
from dkfeat.cli.group import DkfeatCommand, heading
from dkfeat.cli.options import (
    bad_row_options,
    execution_options,
    overwrite_option,
    run_arguments,
    run_options,
    target_of,
    target_option,
)
from dkfeat.cli.output import JSON, echo, facts, is_given, is_quiet, note, print_result, summary_of, table
from dkfeat.cli.rows import rows_given, source_options
from dkfeat.config import EvaluateConfig, PredictConfig, RunConfig
from dkfeat.messages import counted

if TYPE_CHECKING:
    from dkfeat.learn.evaluate.evaluation import Evaluation


@click.command(cls=DkfeatCommand)
@click.argument("model")
@click.argument("source", nargs=-1, required=True)
@heading("Target")
@click.option(
    "--out",
    metavar="DIR|FILE",
    help="Target: a folder or URL for predictions, scores and the origin of each row, or a file in .parquet, .csv or "
    ".txt for labels alone.  [default: labels on standard output]",
)
@option_of(PredictConfig, "scores")
@overwrite_option
@target_option
@source_options
@heading("Bad rows")
@bad_row_options
@run_options
@click.pass_context
def predict(
    ctx: click.Context, /, model: str, source: tuple[str, ...], out: str | None, overwrite: bool, **options: Any
) -> None:
    """Predict for the rows of SOURCE with a trained model.

    SOURCE is LIBSVM text, Parquet or JSON lines, or a folder of shards made by
    the model's map. Files are read with the options of the model's training rows,
    except for their filters, and featurized on the fly.

    If --out is a folder, it gets Parquet files with label, prediction, scores and
    the origin of each row. Tasks write them in parallel, and the same command
    continues an interrupted run. Without --out, labels go to standard output, one
    per line. If SOURCE has labels, the accuracy is printed on standard error;
    `dkfeat evaluate` computes more.

    For example:
      dkfeat predict model new.svm > labels.txt
      dkfeat predict model 'new-*.svm.gz' --out labels.parquet
      dkfeat predict model 'day-*.parquet' --id name --out predictions
      dkfeat predict model features/test --out s3://bucket/predictions
    """
    from dkfeat.learn.model import load_model
    from dkfeat.learn.predict import predict as run
    from dkfeat.learn.predict import predict_file
    from dkfeat.store.outputs import check_outputs

    out = None if out == "-" else out  # "-" means standard output, as in many commands
    to_folder = out is not None and _is_folder(out)
    if overwrite and (to_folder or out is None):
        raise click.UsageError("--overwrite is for --out FILE; a folder of predictions is continued, not replaced", ctx)
    if out is not None and not to_folder:
        check_outputs([out], inputs=source, overwrite=overwrite)
    rows = rows_given(ctx, source, options)
    loaded = load_model(model, storage_options=options["storage_options"])
    if out is not None and to_folder:
        manifest = run(loaded, rows, target_of(out, options), scores=options["scores"], **run_arguments(ctx, options))
        summary_of(manifest, "predictions", out)
        return
    folder_options = {field.name for field in fields(RunConfig)} - {"progress"}
    folder_options |= {"on_bad_row", "max_bad_rows", "scores", "target_options", "id", "keep"}
    if given := given_flags(ctx, folder_options):
        raise click.UsageError(
            f"only predictions in a folder take {', '.join(given.values())}; give --out DIR, or leave them out", ctx
        )
    if out is None and is_given(JSON):
        raise click.UsageError(
            "--json describes the output of --out; without --out, labels go to standard output, one a line", ctx
        )
    outcome = predict_file(loaded, rows, sys.stdout if out is None else out, overwrite=overwrite)
    record = {"rows": outcome.n_rows, "known_rows": outcome.n_known, "accuracy": outcome.accuracy, "predictions": out}
    print_result(record)
    text = f"{counted(outcome.n_rows, 'row')} labelled"
    if outcome.accuracy is not None:
        text += f", accuracy {outcome.accuracy:.2%} on the {outcome.n_known:,} whose label the model knows"
    if not is_given(JSON):
        note(text, err=True)


def _is_folder(out: str) -> bool:
    from dkfeat.filesystems.urls import is_url

    path = Path(out)
    return is_url(out) or path.is_dir() or out.endswith("/") or not (path.exists() or path.suffix)


CLASSES_SHOWN, ERRORS_SHOWN = 30, 5


@click.command(cls=DkfeatCommand)
@click.argument("model")
@click.argument("source", nargs=-1, required=True)
@heading("Report")
@option_of(EvaluateConfig, "out", type=LOCAL_FOLDER, metavar="DIR")
@overwrite_option
@source_options
@execution_options
@click.pass_context
def evaluate(
    ctx: click.Context, /, model: str, source: tuple[str, ...], out: str | None, overwrite: bool, **options: Any
) -> None:
    """Evaluate a model on the labels of SOURCE.

    SOURCE is text, Parquet or shards with labels, or predictions that `dkfeat
    predict` made with this model. Memory does not grow with the rows.

    For example:
      dkfeat evaluate model features/test --out report
      dkfeat evaluate model test.svm.xz --json
      dkfeat evaluate model predictions
    """
    from dkfeat.learn.evaluate.evaluate import evaluate as run
    from dkfeat.learn.evaluate.evaluation import check_report_folder
    from dkfeat.learn.model import load_model

    if out is not None:
        check_report_folder(out, inputs=source, overwrite=overwrite)  # before the evaluation, not after
    rows = rows_given(ctx, source, options)
    loaded = load_model(model, storage_options=options["storage_options"])
    found = run(loaded, rows, **run_arguments(ctx, options))
    if out is not None:
        found.save(out, f"{model} on {', '.join(source)}", overwrite=overwrite)
    print_result(found.to_mapping())
    if is_quiet():
        return
    _show(found)
    if out is not None:
        facts(report=f"{out}/evaluation.html")


def _show(found: Evaluation) -> None:
    unknown = {"rows of unknown label": f"{found.n_unknown:,}, left out"} if found.n_unknown else {}
    facts(rows=f"{found.n_rows:,}", **unknown, **{name: f"{value:.4f}" for name, value in found.summary.items()})
    record = found.to_mapping()
    if record["per_class"]:
        echo()
        rows: list[tuple[str, ...]] = [("class", "precision", "recall", "f1", "rows")]
        for entry in record["per_class"][:CLASSES_SHOWN]:
            rates = (f"{entry[name]:.4f}" for name in rows[0][1:4])
            rows.append((str(entry["label"]), *rates, f"{entry['support']:,}"))
        table(rows, right=range(5))
        if len(record["per_class"]) > CLASSES_SHOWN:
            echo(f"… and {len(record['per_class']) - CLASSES_SHOWN:,} more, see --json")
    wrong = [cell for cell in record["confusion"] if cell["label"] != cell["prediction"]]
    if wrong:
        echo()
        for cell in wrong[:ERRORS_SHOWN]:
            echo(f"{cell['label']} taken for {cell['prediction']}: {counted(cell['rows'], 'row')}")
