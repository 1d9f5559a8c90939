"""``dkfeat duplicates``: find copies and near copies among the rows of shards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import click

from dkfeat.cli.group import DkfeatCommand, heading
from dkfeat.cli.options.declared import option_of
from dkfeat.cli.options.shared import execution_options, output_options, run_arguments
from dkfeat.cli.options.storage import storage_option
from dkfeat.cli.options.types import LOCAL_FOLDER
from dkfeat.cli.output import note, summary
from dkfeat.config import DuplicatesConfig
from dkfeat.messages import counted

if TYPE_CHECKING:
    from dkfeat.neighbors import Duplicates


@click.command(cls=DkfeatCommand)
@click.argument("shards")
@heading("Search")
@option_of(DuplicatesConfig, "out", type=LOCAL_FOLDER, metavar="DIR")
@option_of(DuplicatesConfig, "threshold")
@option_of(DuplicatesConfig, "verify")
@option_of(DuplicatesConfig, "source", metavar="SOURCE")
@storage_option("SHARDS and SOURCE")
@execution_options
@output_options
@click.pass_context
def duplicates(
    ctx: click.Context,
    /,
    shards: str,
    out: str,
    threshold: float,
    verify: Literal["codes", "exact"],
    source: tuple[str, ...],
    storage_options: dict[str, Any] | None,
    **where: Any,
) -> None:
    """Find the rows of SHARDS that are copies or near copies of others.

    SHARDS is a folder of codes made by gcws or dart. DIR gets two folders of
    Parquet files: pairs/data with the similar pairs, and groups/data with the
    group of each row, keep (true for the first row of each group), its place in
    the source and the columns that the shards keep. The expected recall and
    number of candidates are reported before the comparisons. The same command
    continues an interrupted search.

    For example:
      dkfeat duplicates features --threshold 0.8 --out copies
      dkfeat duplicates features --verify exact --source 'day-*.svm' --out copies
      dkfeat report copies --out copies.html
    """
    from dkfeat.neighbors import duplicates as run

    found = run(
        shards,
        threshold,
        target=out,
        verify=verify,
        source=source or None,
        storage_options=storage_options,
        **run_arguments(ctx, where),
    )
    summary({**found.to_mapping(), "duplicates": out}, {**_shown(found), "duplicates": out})
    if found.chain_note:
        note(found.chain_note)


def _shown(found: Duplicates) -> dict[str, str]:
    return {
        "rows": f"{found.n_rows:,}",
        "copies": f"{found.n_copies:,} rows with the codes of an earlier one",
        "pairs": f"{found.n_pairs:,} of similarity {found.threshold:g} and above, copies included",
        "groups": f"{found.n_groups:,}, the largest of {counted(found.largest_group, 'row')}",
        "rows kept": f"{found.n_kept:,}, {found.n_kept / max(1, found.n_rows):.2%}",
        "expected recall": f"{found.expected_recall:.1%} of pairs at the threshold",
        "candidates": f"{found.n_candidates:,}, {found.n_compared:,} of them compared",
    }
