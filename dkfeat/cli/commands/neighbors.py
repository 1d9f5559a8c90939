"""``dkfeat neighbors``, ``duplicates`` and ``drop-duplicates``: similar rows, and copies of rows."""

from __future__ import annotations

from typing import Any

import click

from dkfeat.cli.declared import option_of, options_of
from dkfeat.cli.group import DkfeatCommand, heading
from dkfeat.cli.options import (
    bad_row_options,
    execution_options,
    run_arguments,
    run_options,
    storage_option,
    target_of,
    target_option,
)
from dkfeat.cli.output import note, summary, summary_of
from dkfeat.cli.rows import rows_given, source_options
from dkfeat.config import DuplicatesConfig, NeighborsConfig
from dkfeat.messages import counted, percent


@click.command(cls=DkfeatCommand)
@click.argument("shards")
@click.argument("queries", nargs=-1)
@heading("Search")
@options_of(NeighborsConfig, "n_neighbors", "rerank", "method")
@option_of(NeighborsConfig, "source", multiple=True, metavar="FILES")
@heading("Target")
@option_of(NeighborsConfig, "out", metavar="DIR")
@target_option
@source_options
@heading("Bad rows")
@bad_row_options
@run_options
@click.pass_context
def neighbors(
    ctx: click.Context, /, shards: str, queries: tuple[str, ...], source: tuple[str, ...], out: str, **options: Any
) -> None:
    """Find the rows of SHARDS that are most similar to each row of QUERIES.

    SHARDS is a folder of codes that `dkfeat featurize` made with the map gcws,
    dart or minhash; the similarity is the min-max kernel of its map. QUERIES is
    LIBSVM text, Parquet or JSON lines, read as the source of SHARDS was, or,
    without --rerank, a folder of shards made with --like SHARDS. Without QUERIES,
    each row of SHARDS is compared with all others: the graph of nearest
    neighbours. With --method graph it is approximate; the command shows its
    recall.

    DIR/data gets Parquet files with query, rank, neighbor, similarity and
    standard_error, and the columns that the shards keep, such as id and
    neighbor_id. The same command continues an interrupted run, adds the
    neighbours of new queries, and does nothing when all is done.

    For example:
      dkfeat neighbors features --n-neighbors 15 --out graph
      dkfeat neighbors features --method graph --out graph
      dkfeat neighbors features new.svm --out found
      dkfeat neighbors features 'new-*.parquet' --id name --out found
      dkfeat neighbors features new.svm --rerank 100 --source old.svm --out found

    `dkfeat.neighbors.Neighbors.open("found")` reads the result as arrays, or as a
    graph for scikit-learn.
    """
    from dkfeat.neighbors import search
    from dkfeat.sources.base import Source

    rows = rows_given(ctx, queries, options) if queries else None
    found = search(
        shards,
        rows,
        options["n_neighbors"],
        rerank=options["rerank"],
        method=options["method"],
        source=list(source) or None,
        target=target_of(out, options),
        storage_options=options["storage_options"],
        **run_arguments(ctx, options),
    )
    n = found.n_neighbors
    (first, _), (last, error) = found.medians(1), found.medians(n)
    record = {"neighbors": out, "queries": found.n_queries, "rows": found.n_rows, "n_neighbors": n}
    record |= {"method": options["method"], "recall": found.recall}
    record |= {"first_similarity": first, "last_similarity": last, "standard_error": error}
    of = counted(found.n_rows, "row")
    shown = {"queries": f"{found.n_queries:,}", "neighbors": f"{n:,} of {of} for each, in {out}"}
    if isinstance(rows, Source):
        shown["shards of queries"] = f"{out.rstrip('/')}-queries"
    shown["method"] = "exact, each is compared with all rows"
    if options["method"] == "graph":
        recall = "" if found.recall is None else f", recall {percent(found.recall)} by a sample of the rows"
        shown["method"] = f"approximate{recall}"
    if found.n_queries:
        is_exact = options["rerank"] is not None
        shown["median similarity"] = f"{first:.3f} at rank 1, {last:.3f} at rank {n:,}"
        shown["standard error"] = "0, compared exactly" if is_exact else f"{error:.3f} at rank {n:,}"
    summary(record, shown)


@click.command(cls=DkfeatCommand)
@click.argument("shards")
@heading("Search")
@option_of(DuplicatesConfig, "out", metavar="DIR")
@target_option
@option_of(DuplicatesConfig, "threshold")
@option_of(DuplicatesConfig, "verify")
@option_of(DuplicatesConfig, "source", metavar="SOURCE")
@option_of(DuplicatesConfig, "keep_earlier")
@storage_option("SHARDS and SOURCE")
@execution_options
@click.pass_context
def duplicates(ctx: click.Context, /, shards: str, out: str, **options: Any) -> None:
    """Find the rows of SHARDS that are copies or near copies of others.

    SHARDS is a folder of codes by gcws, dart or minhash. DIR gets two folders of
    Parquet files: pairs/data with the similar pairs, and groups/data with the
    group of each row, keep (true for the first row of each group), its place in
    the source and the columns that the shards keep. The expected recall is
    reported before the comparisons. The same command continues an interrupted
    search, and adds new shards of SHARDS, whose rows alone are compared with all.

    For example:
      dkfeat duplicates features --threshold 0.8 --out copies
      dkfeat duplicates features --verify exact --source 'day-*.svm' --out copies
    """
    from dkfeat.neighbors import duplicates as run

    named = {name: options[name] for name in ("threshold", "verify", "keep_earlier", "storage_options")}
    found = run(
        shards, target=target_of(out, options), source=options["source"] or None, **named, **run_arguments(ctx, options)
    )
    shown = {
        "rows": f"{found.n_rows:,}",
        "copies": f"{counted(found.n_copies, 'row')} with the codes of an earlier one",
        "pairs": f"{found.n_pairs:,} of similarity {found.threshold:g} and above, copies included",
        "groups": f"{found.n_groups:,}, the largest of {counted(found.largest_group, 'row')}",
        "rows kept": f"{found.n_kept:,}, {found.n_kept / max(1, found.n_rows):.2%}",
        "expected recall": f"{found.expected_recall:.1%} of pairs at the threshold",
        "candidates": f"{found.n_candidates:,}, {found.n_compared:,} of them compared",
        "duplicates": out,
    }
    summary({**found.to_mapping(), "duplicates": out}, shown)
    if found.chain_note:
        note(found.chain_note)


@click.command("drop-duplicates", cls=DkfeatCommand)
@click.argument("rows", nargs=-1, required=True)
@click.argument("duplicates")
@heading("Target")
@click.option("--out", required=True, metavar="DIR", help="Target: a folder or URL for the copy.")
@click.option("--dropped", metavar="DIR", help="Folder or URL for the other rows of a source.")
@target_option
@heading("Reading rows")
@storage_option("ROWS, their shards and DUPLICATES")
@run_options
@click.pass_context
def drop_duplicates(
    ctx: click.Context, /, rows: tuple[str, ...], duplicates: str, out: str, dropped: str | None, **options: Any
) -> None:
    """Copy ROWS without the duplicates in DUPLICATES.

    DUPLICATES is the folder that `dkfeat duplicates` wrote. ROWS is the source of
    the shards in which they were found: Parquet files, of which the copy has all
    columns, or text, whose lines are copied. Or ROWS is the folder of these
    shards; then the copy is a data set like it, for training. Of each group of
    duplicates the first row is left. The same command again continues an
    interrupted run.

    For example:
      dkfeat duplicates features --threshold 0.8 --out duplicates
      dkfeat drop-duplicates 'docs/*.parquet' duplicates --out clean
      dkfeat drop-duplicates features duplicates --out distinct
    """
    from dkfeat.neighbors import Duplicates
    from dkfeat.neighbors import drop_duplicates as run

    found = Duplicates.open(duplicates, storage_options=options["storage_options"])
    to = None if dropped is None else target_of(dropped, options)
    named = {"dropped": to, "storage_options": options["storage_options"]}
    manifest = run(list(rows), found, target_of(out, options), **named, **run_arguments(ctx, options))
    n_dropped = found.n_rows - manifest.rows
    summary_of(manifest, "target", out, dropped=n_dropped, dropped_target=dropped)
    place = "" if dropped is None else f"; they are in {dropped}"
    note(f"left out: {n_dropped:,} of the {counted(found.n_rows, 'row')} of {rows[0]}{place}")
