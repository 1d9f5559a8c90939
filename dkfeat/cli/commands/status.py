"""``dkfeat status``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dkfeat.cli.group import DkfeatCommand
from dkfeat.cli.options.shared import output_options
from dkfeat.cli.options.storage import storage_option
from dkfeat.cli.output import answer, facts, is_quiet, show_size, shown
from dkfeat.messages import counted

if TYPE_CHECKING:
    from dkfeat.io.commit.status import Status


SHOWN = 5
"""Names that are listed."""
STATES = {
    "running": "a run is writing to it",
    "damaged": "committed shards are missing; the same run again makes them anew",
    "unfinished": "a batch was left half-way; the same run again goes on",
    "empty": "nothing is committed",
    "complete": "all that was planned is committed",
}
UNFINISHED = 4


@click.command(cls=DkfeatCommand)
@click.argument("target")
@click.option("--check", is_flag=True, help="Exit with 3 if shards are missing, with 4 if TARGET is not complete.")
@storage_option("TARGET")
@output_options
@click.pass_context
def status(ctx: click.Context, /, target: str, check: bool, storage_options: dict[str, Any] | None) -> None:
    """Show the state of folder TARGET: complete, running or unfinished.

    Nothing is written, and a run that is going on is not disturbed. The exit
    status is 0 in any state, unless --check is given.

    For example:
      dkfeat status features/days
      dkfeat status features/days --check --quiet && dkfeat train features/days
    """
    from dkfeat.errors import ShardError
    from dkfeat.io.commit.status import status as look

    found = look(target, storage_options=storage_options)
    answer(found.to_mapping())
    if not is_quiet():
        facts(**{name: value for name, value in _readable(found).items() if value})
    if check and found.state == "damaged":
        raise ShardError(f"{target}: {len(found.missing):,} committed shards are missing, such as {found.missing[0]}")
    if check and found.state != "complete":
        ctx.exit(UNFINISHED)


def _readable(found: Status) -> dict[str, str]:
    lines = {"target": found.target, "state": f"{found.state}: {STATES[found.state]}"}
    if found.committed is not None:
        last = found.committed
        lines |= {
            "last_commit": f"batch {last.number:,} at {last.at} by run {last.run_id}",
            "rows": f"{last.rows:,}",
            "shards": f"{last.shards:,}, {show_size(last.size, last.rows)}",
            "sources": f"{last.sources:,}",
        }
    if found.holder is not None:
        holder = found.holder
        alive = {True: "running", False: "ended without tidying up", None: "running, or it died on that host"}
        lines["lock"] = f"run {holder.run_id}, host {holder.host}, pid {holder.pid}, since {holder.since}: "
        lines["lock"] += alive[holder.alive]
    if found.unfinished is not None:
        batch = found.unfinished
        lines["batch"] = (
            f"{batch.number:,}: {batch.splits_done:,} of {batch.splits:,} splits done, {batch.splits_left:,} left; "
            f"{counted(len(batch.shards), 'shard')} not yet listed"
        )
        lines["batch_sources"] = _some(batch.sources)
    return lines | {"missing": _some(found.missing), "not_listed": _some(found.unlisted)}


def _some(names: tuple[str, ...]) -> str:
    some = ", ".join(map(shown, names[:SHOWN]))
    return f"{len(names):,} ({some}{', …' if len(names) > SHOWN else ''})" if names else ""
