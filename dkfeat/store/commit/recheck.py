"""Comparison of the present source files with the committed ones: changed, renamed and moved files."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dkfeat.canonical import fingerprint
from dkfeat.errors import InputError, ParquetError, ParseError, SpecConflictError
from dkfeat.filesystems.urls import shown_url
from dkfeat.store.manifest.batch_plan import check_pinned
from dkfeat.store.manifest.manifest import Manifest
from dkfeat.store.manifest.records import SourceEntry
from dkfeat.store.storage.base import Storage

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkfeat.blocks import SourceFile

    Checksum = tuple[int, int, str]
    Checksums = Callable[[Sequence[SourceFile]], Iterable[Checksum]]


logger = logging.getLogger(__name__)

KEEP = 'on_changed_source="keep", --on-changed-source keep'


def changed_sources(
    storage: Storage, manifest: Manifest, files: Sequence[SourceFile], *, keep: bool, checksums: Checksums | None
) -> tuple[str, ...]:
    """Return the names of the committed sources that have changed or vanished.

    Raises
    ------
    SpecConflictError
        If a source has changed or vanished and `keep` is False, or its committed content is among `files` under another
        name.
    """
    found = {file.name: file for file in files}
    remedy = f"keep its rows as they are committed ({KEEP}), or choose another target"
    columns = manifest.records.sources
    names, sizes, times, tags = columns["name"], columns["size"].tolist(), columns["mtime_ns"], columns["etag"]
    changed = [place for place, name in enumerate(names) if name not in found] if keep else []
    untagged = False
    for place in [place for place, name in enumerate(names) if name in found] if keep else range(len(names)):
        file = found.get(names[place])
        untagged = untagged or (file is not None and tags[place] is None)
        if file is not None and (file.size, file.mtime_ns, file.etag) == (sizes[place], times[place], tags[place]):
            continue  # nearly all of up to a million files are unchanged
        try:
            check_pinned(manifest.sources[place].identity, file, f"since {manifest.name} was committed", remedy)
        except SpecConflictError:
            if not keep:
                raise
            changed.append(place)
    changed.sort()
    root = manifest.run.get("source_root")
    if untagged and root not in (None, fingerprint_of_root(files)):
        logger.warning(
            "%s: the sources are in another folder than when %s was committed. Files of the same names, sizes and "
            "times are taken for the committed ones; `dkfeat verify --inputs` compares their bytes",
            storage.url,
            manifest.name,
        )
    if changed:
        _check_moved(manifest, files, changed, checksums)
        logger.warning(
            "%s: %d of %d committed sources changed or are gone, such as %a; their rows stay as they are committed",
            storage.url,
            len(changed),
            len(names),
            names[changed[0]],
        )
    return tuple(names[place] for place in changed)


def fingerprint_of_root(files: Sequence[SourceFile]) -> str:
    """Return the hash of the folder to which the names of files are relative."""
    return fingerprint(shown_url(files[0].url).removesuffix(files[0].name)) if files else ""


def _check_moved(
    manifest: Manifest, files: Sequence[SourceFile], changed: Sequence[int], checksums: Checksums | None
) -> None:
    """Raise an error if the content of a source that changed or vanished is among `files` under another name.

    `changed` are the places of such sources in the manifest.
    """
    columns = manifest.records.sources
    listed = set(columns["name"])
    found = {file.name: file for file in files}
    new: dict[int, list[SourceFile]] = {}
    for file in files:
        if file.name not in listed:
            new.setdefault(file.size, []).append(file)
    places = np.array(changed)
    places = places[np.isin(columns["size"][places], list(new)) & (columns["rows"][places] > 0)]
    wanted = {columns["name"][place] for place in changed} if len(places) else set()
    alone: dict[int, list[_Content]] = {}
    for content in _contents(manifest, places):
        if len(content.sources) == 1:
            alone.setdefault(content.sources[0].size, []).append(content)
            continue
        lost = [source for source in content.sources if source.name in wanted and source.rows]
        for choice in _choices(lost, new):
            renamed = {source.name: file for source, file in zip(lost, choice, strict=True)}
            members = [renamed.get(source.name, found.get(source.name)) for source in content.sources]
            if _matching([file for file in members if file is not None], [content], checksums) is not None:
                raise _moved_error(choice[0], lost[0], found)
        if len(lost) > 1:  # the hash of the group does not tell which of its files were renamed
            keys = {_unnamed(source): source for source in lost}
            for file in (file for source in lost for file in new.get(source.size, ())):
                if _unnamed(file) in keys:
                    raise _moved_error(file, keys[_unnamed(file)], found)
    for size, contents in alone.items():
        for file in new.get(size, ()):
            match = _matching([file], contents, checksums)
            if match is not None:
                raise _moved_error(file, match.sources[0], found)


class _Content(NamedTuple):
    """Committed content that was read as one: a file, or a group of tiny files."""

    sources: tuple[SourceEntry, ...]
    pieces: tuple[Checksum, ...]


def _contents(manifest: Manifest, places: NDArray[np.int64]) -> Iterator[_Content]:
    """Yield the committed content of the sources at some places, which have rows, with the rest of their groups."""
    splits = manifest.records.splits
    ends = np.cumsum(splits["pieces"])
    of_places = np.searchsorted(splits["source"], places, side="right") - 1  # the last split of each
    for first in np.unique(splits["source"][of_places]).tolist():
        begin, end = np.searchsorted(splits["source"], [first, first + 1])
        entries = manifest.shards[int(ends[begin] - splits["pieces"][begin]) : int(ends[end - 1])]
        sources = manifest.sources[first : first + int(splits["n_files"][begin])]
        yield _Content(sources, tuple((*entry.range, entry.source_sha256) for entry in entries))


def _choices(lost: Sequence[SourceEntry], new: Mapping[int, list[SourceFile]]) -> Iterator[tuple[SourceFile, ...]]:
    """Yield new files of the sizes of the lost files of a group: each file for one of them, in order for several."""
    if len(lost) == 1:
        yield from ((file,) for file in new.get(lost[0].size, ()))
        return
    left = {source.size: iter(new.get(source.size, ())) for source in lost}
    choice = [next(left[source.size], None) for source in lost]
    if None not in choice:
        yield tuple(file for file in choice if file is not None)


def _matching(
    files: Sequence[SourceFile], contents: Sequence[_Content], checksums: Checksums | None
) -> _Content | None:
    """Return the content that files have, if any of `contents`; reading ends with the first range that none has."""
    assert checksums is not None
    n_pieces = 0
    try:
        for piece in checksums(files):
            contents = [content for content in contents if content.pieces[n_pieces : n_pieces + 1] == (piece,)]
            n_pieces += 1
            if not contents:
                return None
    except (ParseError, ParquetError, InputError):  # the committed rows were read without an error
        return None
    return next((content for content in contents if len(content.pieces) == n_pieces), None)


def _unnamed(file: SourceFile | SourceEntry) -> tuple[int, int | None, str | None]:
    return file.size, file.mtime_ns, file.etag


def _moved_error(file: SourceFile, source: SourceEntry, found: Container[str]) -> SpecConflictError:
    state = "has changed" if source.name in found else "is gone"
    return SpecConflictError(
        f"source {file.name!a} has the content of {source.name!a}, which is committed and {state}: its rows would be "
        "committed twice. Give the file its committed name and the same paths and patterns as before, or move it to a "
        "folder outside of them"
    )
