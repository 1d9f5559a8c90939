"""Batch plan: the source files of a batch and their splits, recorded before any work is done."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NotRequired, Self, TypedDict

from dkfeat.blocks import SourceFile, Split
from dkfeat.canonical import MAX_BYTES, Count, Name, Sha256, dumps, parse_object, typed
from dkfeat.errors import ConfigError, SpecConflictError
from dkfeat.store.manifest.manifest import FORMAT, GROUPS, check_format
from dkfeat.store.manifest.records import check
from dkfeat.store.storage.base import META, Storage, read_required

PLAN_NAME = re.compile(r"plan-([0-9]{6,12})\.json")
OTHER_TARGET = "choose another target"
"""Default remedy in messages about a changed source; it is always possible."""


def plan_name(number: int) -> str:
    """Name of plan `number` inside the metadata folder.

    Examples
    --------
    >>> plan_name(1)
    'plan-000001.json'
    """
    return f"plan-{number:06d}.json"


class _File(TypedDict):
    name: Name
    size: Count
    mtime_ns: int | None
    etag: str | None
    compression: str | None


class _Split(TypedDict):
    number: Count
    file: str
    n_files: NotRequired[Count]
    start: Count
    stop: Count


class _Text(TypedDict):
    number: Count
    spec_fp: Sha256
    files: list[_File]
    splits: list[_Split]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """The sources and splits of one batch."""

    number: int
    """Number of the manifest that the batch will commit."""
    spec_fp: str
    """Fingerprint of the spec."""
    files: tuple[SourceFile, ...]
    """Source files of the batch, in order; a file without rows has no split."""
    splits: tuple[Split, ...]
    """Splits of the files, numbered on from the previous batch."""

    def to_json(self) -> bytes:
        """Serialize the plan; `from_json` reads the result.

        Raises
        ------
        ConfigError
            If it would be too long for `from_json`.
        """
        text = dumps(
            {
                "format": FORMAT,
                **({"requires": [GROUPS]} if any(split.others for split in self.splits) else {}),
                "number": self.number,
                "spec_fp": self.spec_fp,
                "files": ({**file.identity, "compression": file.compression} for file in self.files),
                "splits": map(_split_mapping, self.splits),
            }
        )
        if len(text) > MAX_BYTES:
            raise ConfigError(
                f"the plan of {len(self.splits):,} splits of {len(self.files):,} files takes {len(text):,} bytes, but "
                f"at most {MAX_BYTES:,} can be read again; raise blocksize, or divide the source into several targets"
            )
        return text

    @classmethod
    def from_json(cls, data: bytes, what: str) -> Self:
        """Read and check the text of a plan; the URLs of its files are empty until `located` sets them.

        Raises
        ------
        ShardError
            If the text is damaged.
        SpecConflictError
            If a newer version of dkfeat wrote it.
        """
        values = parse_object(data, what)
        check_format(values, what)
        plan = typed(values, _Text, what)
        files = {item["name"]: SourceFile(**item, url="") for item in plan["files"]}
        check(len(files) == len(plan["files"]), f"{what}: a file is listed twice")
        positions = {name: position for position, name in enumerate(files)}
        ordered = tuple(files.values())
        splits = tuple(_split(item, ordered, positions, what) for item in plan["splits"])
        first = splits[0].number if splits else 0
        check(
            [split.number for split in splits] == [*range(first, first + len(splits))],
            f"{what}: the numbers of its splits have a gap",
        )
        return cls(number=plan["number"], spec_fp=plan["spec_fp"], files=ordered, splits=splits)

    def located(self, files: Iterable[SourceFile], remedy: str = OTHER_TARGET) -> BatchPlan:
        """Return a copy with the current URLs, after a check that no source file has changed.

        `remedy` is offered in the error message as the alternative to restoring a file.

        Raises
        ------
        SpecConflictError
            If a source file changed or is missing; the message names it.
        """
        found = {file.name: file for file in files}
        for file in self.files:
            check_pinned(file.identity, found.get(file.name), "since it was planned", remedy)
        located = {file.name: dataclasses.replace(file, url=found[file.name].url) for file in self.files}
        splits = tuple(split.with_files(located) for split in self.splits)
        return dataclasses.replace(self, files=tuple(located.values()), splits=splits)


def read_plan(storage: Storage, number: int) -> BatchPlan:
    """Read the plan of a batch."""
    name = f"{META}/{plan_name(number)}"
    where = f"{storage.url}/{name}"
    plan = BatchPlan.from_json(read_required(storage, name, "a batch's plan must stay beside its manifest"), where)
    check(plan.number == number, f"{where}: holds plan {plan.number}")
    return plan


def check_pinned(pinned: Mapping[str, Any], found: SourceFile | None, when: str, remedy: str = OTHER_TARGET) -> None:
    """Raise `SpecConflictError` if a source file differs from its record; the message offers `remedy` too."""
    if found is None:
        raise SpecConflictError(f"source {pinned['name']!a} was removed or renamed {when}; restore it, or {remedy}")
    if found.identity == pinned:  # fast path: nearly all of up to a million files are unchanged
        return
    changes = found.changes(pinned)
    if changes:
        restore = "restore it"
        if {**found.identity, "mtime_ns": None} == {**{key: pinned[key] for key in found.identity}, "mtime_ns": None}:
            seconds, rest = divmod(pinned["mtime_ns"] or 0, 10**9)
            restore += f" (if `dkfeat verify --inputs` finds the same bytes: `touch -d @{seconds}.{rest:09}`)"
        raise SpecConflictError(
            f"source {pinned['name']!a} changed {when}: {', '.join(changes)}; {restore}, or {remedy}"
        )


def numbered(splits: Sequence[Split], files: Sequence[SourceFile], first: int) -> tuple[Split, ...]:
    """Select the splits of `files`, in order, numbered from `first`; a group split keeps only those of its files."""
    names = {file.name for file in files}
    chosen: list[Split] = []
    for split in splits:
        kept = tuple(file for file in split.files if file.name in names)
        if kept:
            stop = split.stop if len(kept) == len(split.files) else sum(file.size for file in kept)
            number = first + len(chosen)
            chosen.append(dataclasses.replace(split, number=number, file=kept[0], others=kept[1:], stop=stop))
    return tuple(chosen)


def _split_mapping(split: Split) -> dict[str, Any]:
    """Plain values of a split; the files of a group are adjacent in the plan, so that their number identifies them."""
    group = {"n_files": len(split.files)} if split.others else {}
    return {"number": split.number, "file": split.file.name, **group, "start": split.start, "stop": split.stop}


def _split(item: _Split, files: Sequence[SourceFile], positions: Mapping[str, int], what: str) -> Split:
    where = f"{what}: split {item['number']}"
    check(item["file"] in positions, f"{where} is of {item['file']!a}, which the plan does not list")
    first, n_files = positions[item["file"]], item.get("n_files", 1)
    check(1 <= n_files <= len(files) - first, f"{where} has {n_files:,} files, too many")
    file, *others = files[first : first + n_files]
    return Split(number=item["number"], file=file, others=tuple(others), start=item["start"], stop=item["stop"])
