"""Tiny files of a source joined into splits of a sensible size, by names and sizes alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from dkfeat.blocks import SourceFile, Split

__all__ = ["MOST_FILES", "grouped"]

MOST_FILES = 1_000
"""Files in a group: what a task is told, and what its shards and the manifest say of each file, stays small."""

_TINY_SHARE = 16
_INFLATION = 16


def grouped(splits: Iterable[Split], blocksize: int) -> tuple[Split, ...]:
    """Join neighbouring splits that are tiny whole files; the others stay, in order, and all are numbered anew.

    A file is tiny if its text is at most a sixteenth of `blocksize`. Of a compressed file the text is taken to be
    sixteen times what is stored: more than LIBSVM text shrinks by, and known without reading. Text that inflates
    further makes its group longer to read, not larger in memory, for pieces end by the text itself. A group ends
    before its text would pass `blocksize`, and after `MOST_FILES` files.

    Parameters
    ----------
    splits : iterable of Split
        In source order, each of one file.
    blocksize : int
        Bytes of text in a split of a plain file.

    Returns
    -------
    splits : tuple of Split
        Numbered from the number of the first.

    Examples
    --------
    >>> files = [SourceFile(name=name, url="", size=size) for name, size in (("a", 9), ("b", 5), ("c", 500))]
    >>> splits = [Split(number=i, file=file, start=0, stop=file.size) for i, file in enumerate(files)]
    >>> [(split.number, split.title, split.stop) for split in grouped(splits, blocksize=1000)]
    [(0, 'a and 1 more', 14), (1, 'c', 500)]
    """
    joined: list[Split] = []
    run: list[Split] = []
    first, room = 0, -1

    def close() -> None:
        if run:
            joined.append(_joined(run, first + len(joined)))
            run.clear()

    for split in splits:
        first = first if joined or run else split.number
        text = _likely_text(split.file)
        tiny = text * _TINY_SHARE <= blocksize and (split.start, split.stop) == (0, split.file.size)
        if not tiny or text > room or len(run) == MOST_FILES:
            close()
            room = blocksize if tiny else -1
        run.append(split)
        room -= text
    close()
    return tuple(joined)


def _joined(run: Sequence[Split], number: int) -> Split:
    if len(run) == 1:
        return replace(run[0], number=number)
    stop = sum(split.stop for split in run)
    return Split(number=number, file=run[0].file, start=0, stop=stop, others=tuple(split.file for split in run[1:]))


def _likely_text(file: SourceFile) -> int:
    return file.size * (1 if file.compression is None else _INFLATION)
