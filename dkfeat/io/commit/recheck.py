"""Comparison of the present source files with the committed ones: changed, renamed and moved files."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from dkfeat.canonical import fingerprint
from dkfeat.errors import InputError, ParquetError, ParseError, SpecConflictError
from dkfeat.io.manifest.batch_plan import check_pinned
from dkfeat.io.manifest.manifest import Manifest, SourceEntry
from dkfeat.io.storage.base import Storage
from dkfeat.io.storage.urls import shown_url

if TYPE_CHECKING:
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
    changed = []
    remedy = f"keep its rows as they are committed ({KEEP}), or choose another target"
    for source in manifest.sources:
        try:
            check_pinned(source.identity, found.get(source.name), f"since {manifest.name} was committed", remedy)
        except SpecConflictError:
            if not keep:
                raise
            changed.append(source.name)
    root = manifest.run.get("source_root")
    untagged = any(source.etag is None and source.name in found for source in manifest.sources)
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
            len(manifest.sources),
            changed[0],
        )
    return tuple(changed)


def fingerprint_of_root(files: Sequence[SourceFile]) -> str:
    """Return the hash of the folder to which the names of files are relative."""
    return fingerprint(shown_url(files[0].url).removesuffix(files[0].name)) if files else ""


def _check_moved(
    manifest: Manifest, files: Sequence[SourceFile], changed: Sequence[str], checksums: Checksums | None
) -> None:
    """Raise an error if the committed content of a changed or vanished source is among `files` under another name."""
    listed = {source.name for source in manifest.sources}
    found = {file.name: file for file in files}
    new: dict[int, list[SourceFile]] = {}
    for file in files:
        if file.name not in listed:
            new.setdefault(file.size, []).append(file)
    wanted = set(changed)
    alone: dict[int, list[_Content]] = {}
    for content in _contents(manifest, wanted):
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


def _contents(manifest: Manifest, names: Container[str]) -> Iterator[_Content]:
    """Yield the committed content of the sources of these names that have rows, with the rest of their groups."""
    positions = {source.name: position for position, source in enumerate(manifest.sources)}
    for first, shards in groupby(manifest.shards, key=lambda entry: entry.source):
        entries = tuple(shards)
        position, n_files = positions[first], max(len(entries[0].rows_by_file), 1)
        sources = manifest.sources[position : position + n_files]
        if any(source.name in names and source.rows for source in sources):
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
