"""``dkfeat neighbors`` and ``dkfeat index``: the rows of shards that are most similar to queries, and faster reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dkfeat.cli.commands.predict import rows_given
from dkfeat.cli.group import DkfeatCommand, heading
from dkfeat.cli.options.declared import option_of, options_of
from dkfeat.cli.options.rows import source_options
from dkfeat.cli.options.shared import (
    bad_row_options,
    break_lock_first,
    execution_options,
    output_options,
    run_arguments,
    run_options,
)
from dkfeat.cli.options.storage import target_option
from dkfeat.cli.output import summary, summary_of
from dkfeat.config import NeighborsConfig

if TYPE_CHECKING:
    from dkfeat.neighbors.result import Neighbors


@click.command(cls=DkfeatCommand)
@click.argument("shards")
@click.argument("queries", nargs=-1)
@heading("Search")
@options_of(NeighborsConfig, "n_neighbors", "rerank")
@option_of(NeighborsConfig, "source", multiple=True, metavar="FILES")
@option_of(NeighborsConfig, "query_source", multiple=True, metavar="FILES")
@heading("Target")
@option_of(NeighborsConfig, "out", metavar="DIR")
@target_option
@source_options
@heading("Bad rows")
@bad_row_options
@run_options
@output_options
@click.pass_context
def neighbors(
    ctx: click.Context, /, shards: str, queries: tuple[str, ...], source: tuple[str, ...], out: str, **options: Any
) -> None:
    """Find the rows of SHARDS that are most similar to each row of QUERIES.

    SHARDS is a folder of codes that `dkfeat featurize` made with the map gcws or
    dart; the similarity is the min-max kernel of its map. QUERIES is LIBSVM text
    or Parquet files, read as the source of SHARDS was, or a folder of shards made
    with --like SHARDS. Without QUERIES, each row of SHARDS is compared with all
    others: the graph of nearest neighbours.

    DIR/data gets Parquet files with query, rank, neighbor, similarity and
    standard_error, and the columns that the shards keep, such as id and
    neighbor_id. The same command continues an interrupted run, adds the
    neighbours of new queries, and does nothing when all is done.

    For example:
      dkfeat neighbors features --n-neighbors 15 --out graph
      dkfeat neighbors features new.svm --out found
      dkfeat neighbors features 'new-*.parquet' --id name --out found
      dkfeat neighbors features new.svm --rerank 100 --source old.svm --out found

    `dkfeat.neighbors.Neighbors.open("found")` reads the result as arrays, or as a
    graph for scikit-learn.
    """
    from dkfeat.neighbors import search

    rows = rows_given(ctx, queries, options) if queries else None
    break_lock_first(out, options)
    found = search(
        shards,
        rows,
        options["n_neighbors"],
        rerank=options["rerank"],
        source=list(source) or None,
        query_source=list(options["query_source"]) or None,
        target=out,
        storage_options=options["storage_options"],
        **{name: options[name] for name in ("target_options", "resume", "on_bad_row", "max_bad_rows")},
        **run_arguments(ctx, options),
    )
    _summary(found, out, is_exact=options["rerank"] is not None)


def _summary(found: Neighbors, out: str, *, is_exact: bool) -> None:
    n = found.n_neighbors
    (first, _), (last, error) = found.medians(1), found.medians(n)
    record = {
        "neighbors": out,
        "queries": found.n_queries,
        "rows": found.n_rows,
        "n_neighbors": n,
        "first_similarity": first,
        "last_similarity": last,
        "standard_error": error,
    }
    shown = {"queries": f"{found.n_queries:,}", "neighbors": f"{n:,} of {found.n_rows:,} rows for each, in {out}"}
    if found.n_queries:
        shown["median similarity"] = f"{first:.3f} at rank 1, {last:.3f} at rank {n:,}"
        shown["standard error"] = "0, compared exactly" if is_exact else f"{error:.3f} at rank {n:,}"
    summary(record, shown)


@click.command(cls=DkfeatCommand)
@click.argument("shards")
@execution_options
@output_options
@click.pass_context
def index(ctx: click.Context, /, shards: str, **options: Any) -> None:
    """Write an index of SHARDS, with which few queries are answered faster.

    The index is a copy of the codes in the folder SHARDS-index, which `dkfeat
    neighbors` maps into memory; its results are the same. The same command
    continues an interrupted run, and adds shards that SHARDS got later. Until
    then searches end with an error; to go back, remove the folder.

    For example:
      dkfeat index features
      dkfeat neighbors features query.svm --out found
    """
    from dkfeat.neighbors import index as run

    summary_of(run(shards, **run_arguments(ctx, options)), "target", f"{shards.rstrip('/')}-index")
