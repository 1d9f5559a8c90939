"""``dkfeat explain``: contributions of columns to the scores of a model."""

from __future__ import annotations

from typing import Any

import click

from dkfeat.cli.declared import LOCAL_FILE
from dkfeat.cli.group import DkfeatCommand, heading
from dkfeat.cli.options import output_options, overwrite_option
from dkfeat.cli.output import is_quiet, print_result, table
from dkfeat.cli.rows import rows_given, source_options
from dkfeat.errors import ConfigError

COLUMNS_SHOWN = 20


@click.command(cls=DkfeatCommand)
@click.argument("model")
@click.argument("rows", nargs=-1, required=True)
@heading("Explanation")
@click.option(
    "--background",
    metavar="FILES",
    multiple=True,
    help="Rows whose mean contributions are the baseline, read as ROWS are. Repeatable.  [default: ROWS]",
)
@heading("Target")
@click.option("--out", type=LOCAL_FILE, metavar="FILE", help="Parquet file for the contributions of each row.")
@overwrite_option
@source_options
@output_options
@click.pass_context
def explain(
    ctx: click.Context,
    /,
    model: str,
    rows: tuple[str, ...],
    background: tuple[str, ...],
    out: str | None,
    overwrite: bool,
    **options: Any,
) -> None:
    """Split the scores of ROWS into contributions of columns, exactly.

    MODEL was trained on codes of the map gcws, dart or minhash, each of which
    comes from one column of the row. ROWS is LIBSVM text, Parquet or JSON lines,
    read with the options of the model's training rows and held in memory; shards
    do not tell the columns.

    The command prints the most important columns: the mean, over ROWS, of the
    absolute difference between a column's contribution and its baseline. FILE has
    the columns row, class (if there are more than two), column, contribution and
    value.

    For example:
      dkfeat explain model new.svm
      dkfeat explain model new.svm --background train.svm --out why.parquet
    """
    from pyarrow.parquet import write_table

    from dkfeat.learn.explain import explain as run
    from dkfeat.store.manifest.model_folder import LocalFolder
    from dkfeat.store.outputs import PARQUET_MARK, check_outputs

    written = [] if out is None else check_outputs([out], inputs=[*rows, *background], overwrite=overwrite)
    if out is not None and not out.lower().endswith(".parquet"):
        raise ConfigError(f"--out {out}: contributions are written as Parquet; give a name in .parquet")
    others = rows_given(ctx, background, options) if background else None
    found = run(model, rows_given(ctx, rows, options), background=others, storage_options=options["storage_options"])
    for path in written:
        path.parent.mkdir(parents=True, exist_ok=True)
        with LocalFolder(str(path.parent)).writing(path.name) as file:
            write_table(found.to_table().replace_schema_metadata({PARQUET_MARK: "contributions"}), file)
    ranked = list(found.ranked().items())[:COLUMNS_SHOWN]
    importances = [{"column": name, "importance": value} for name, value in ranked]
    print_result({"rows": found.n_rows, "columns": len(found.columns), "importances": importances, "out": out})
    if not is_quiet():
        column = "column" if isinstance(ranked[0][0], str) else "column, from 0"
        table([(column, "importance"), *((str(name), f"{value:.4f}") for name, value in ranked)], right=[1])
