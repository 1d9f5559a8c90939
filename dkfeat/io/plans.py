"""The plan of a batch: which sources it covers and how they are cut, pinned before any work is done."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from dkfeat.blocks import SourceFile, Split
from dkfeat.errors import ShardError, SpecConflictError
from dkfeat.io import strict_json
from dkfeat.io.entries import check, check_count, check_hash, check_identity, pick
from dkfeat.io.manifest import FORMAT, GROUPS, check_format

__all__ = ["PinnedPlan", "plan_name"]

OTHER_TARGET = "choose another target"
"""What can always be done about a source that is not what was pinned."""


def plan_name(number: int) -> str:
    """Name of plan `number` inside the metadata folder.

    Examples
    --------
    >>> plan_name(1)
    'plan-000001.json'
    """
    return f"plan-{number:06d}.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedPlan:
    """The sources and splits of one batch."""

    number: int
    """The manifest that the batch will commit."""
    spec_fp: str
    """Fingerprint of the spec."""
    files: tuple[SourceFile, ...]
    """Sources of the batch, in order; a file without rows has no split."""
    splits: tuple[Split, ...]
    """Numbered on from the batch before."""

    def to_json(self) -> bytes:
        """Text of the file; what `from_json` reads."""
        return strict_json.dumps(
            {
                "format": FORMAT,
                **({"requires": [GROUPS]} if any(split.others for split in self.splits) else {}),
                "number": self.number,
                "spec_fp": self.spec_fp,
                "files": map(_without_url, self.files),
                "splits": map(_split_mapping, self.splits),
            }
        )

    @classmethod
    def from_json(cls, data: bytes, what: str) -> Self:
        """Read and check the text of a plan; its files have no URL yet.

        Raises
        ------
        ShardError
            When it is damaged.
        SpecConflictError
            When a newer dkfeat wrote it.
        """
        values = strict_json.parse_object(data, what)
        check_format(values, what)
        values = pick(values, cls.__slots__, what)
        check_count(values["number"], f"{what}: number")
        check_hash(values["spec_fp"], f"{what}: spec_fp")
        check(isinstance(values["files"], list) and isinstance(values["splits"], list), f"{what}: lists expected")
        files = {file.name: file for file in (_file(item, what) for item in values["files"])}
        check(len(files) == len(values["files"]), f"{what}: a file is listed twice")
        positions = {name: position for position, name in enumerate(files)}
        splits = tuple(_split(item, tuple(files.values()), positions, what) for item in values["splits"])
        numbers = [split.number for split in splits]
        check(
            numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True, f"{what}: numbers jump"
        )
        return cls(number=values["number"], spec_fp=values["spec_fp"], files=tuple(files.values()), splits=splits)

    def located(self, files: Iterable[SourceFile], remedy: str = OTHER_TARGET) -> PinnedPlan:
        """Copy with URLs of today, made after a check that every source is still what it was.

        `remedy` is what the message offers beside restoring a source.

        Raises
        ------
        SpecConflictError
            Naming a source that changed or is gone.
        """
        found = {file.name: file for file in files}
        for file in self.files:
            check_pinned(file.identity, found.get(file.name), "between the plan and now", remedy)
        located = {file.name: dataclasses.replace(file, url=found[file.name].url) for file in self.files}
        splits = tuple(split.with_files(located) for split in self.splits)
        return dataclasses.replace(self, files=tuple(located.values()), splits=splits)


def check_pinned(pinned: Mapping[str, Any], found: SourceFile | None, when: str, remedy: str = OTHER_TARGET) -> None:
    """Refuse a source that is not what was pinned; `remedy` is offered beside restoring it."""
    if found is None:
        message = f"source {pinned['name']!a} is gone or renamed {when}; put it back, or {remedy}"
        raise SpecConflictError(message)
    if found.identity == pinned:  # as all are but a few, of what may be a million
        return
    changes = [f"{key} {pinned[key]} is now {value}" for key, value in found.identity.items() if pinned[key] != value]
    if changes:
        restore = "restore it"
        if {**found.identity, "mtime_ns": None} == {**{key: pinned[key] for key in found.identity}, "mtime_ns": None}:
            seconds, rest = divmod(pinned["mtime_ns"] or 0, 10**9)
            restore += (
                f" (if its bytes are the same, as `dkfeat verify --inputs` tells: `touch -d @{seconds}.{rest:09}`)"
            )
        message = f"source {pinned['name']!a} changed {when}: {', '.join(changes)}; {restore}, or {remedy}"
        raise SpecConflictError(message)


def numbered(splits: Sequence[Split], files: Sequence[SourceFile], first: int) -> tuple[Split, ...]:
    """Pick the splits of `files`, in order, with numbers that continue from `first`; groups keep these files alone."""
    names = {file.name for file in files}
    chosen: list[Split] = []
    for split in splits:
        kept = tuple(file for file in split.files if file.name in names)
        if kept:
            stop = split.stop if len(kept) == len(split.files) else sum(file.size for file in kept)
            number = first + len(chosen)
            chosen.append(dataclasses.replace(split, number=number, file=kept[0], others=kept[1:], stop=stop))
    return tuple(chosen)


def _without_url(file: SourceFile) -> dict[str, Any]:
    return {**file.identity, "compression": file.compression}


def _file(mapping: object, what: str) -> SourceFile:
    values = pick(mapping, ("name", "size", "mtime_ns", "etag", "compression"), what)
    check_identity(values, f"{what}: file")
    return SourceFile(**values, url="")


def _split_mapping(split: Split) -> dict[str, Any]:
    """Plain values; the files of a group follow one another in the plan, so that their number tells them."""
    group = {"n_files": len(split.files)} if split.others else {}
    return {"number": split.number, "file": split.file.name, **group, "start": split.start, "stop": split.stop}


def _split(mapping: object, files: Sequence[SourceFile], positions: Mapping[str, int], what: str) -> Split:
    values = pick(mapping, ("number", "file", "start", "stop"), what)
    for key in ("number", "start", "stop"):
        check_count(values[key], f"{what}: {key}")
    check(isinstance(values["file"], str), f"{what}: a split's file is not text")
    if values["file"] not in positions:
        message = f"{what}: split {values['number']} is of {values['file']!a}, which the plan does not list"
        raise ShardError(message)
    n_files = mapping.get("n_files", 1) if isinstance(mapping, Mapping) else 1
    check_count(n_files, f"{what}: n_files")
    first = positions[values["file"]]
    check(1 <= n_files <= len(files) - first, f"{what}: split {values['number']} has {n_files:,} files, too many")
    group = tuple(files[first : first + n_files])
    return Split(**{**values, "file": group[0], "others": group[1:]})
