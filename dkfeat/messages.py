"""Text for messages and tables: the nearest valid name, counts, sizes in bytes, texts without secrets.

All text for people passes `without_secrets`: the messages of errors in their constructor, log records in the loggers of
`logger_of`, pages in their templates, and lines of commands in the functions that print them.

`read_number` reads the text of a number as all options take it.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Callable, Collection, Sequence
from math import floor
from typing import TypeVar

Number = TypeVar("Number")

_SCHEMES = r"https?|s?ftps?|s3a?|gc?s|az|adl|tcp|tls|wss?|(?:web)?hdfs"
_HOST = rf"(?<!file)(?<!local)(?:://+|(?:{_SCHEMES}):/|(?<=\w):/(?=[^\s/:@]*:[^\s/]*@))"
"""Start of the host of a URL, which is not on this machine; pathlib makes one slash of two."""
_END = r"(?=['\x22`)\],:;.>]{0,3}(?:[&\s]|$))"
# patterns are texts: re compiles and keeps them when they are first used, not when this module is imported
_STORE = (  # the secret may contain slashes; a bucket name contains no colon
    r"(?i)((?:s3a?|gc?s|az|abfss?|adl):/+)(?!arn:)[^/\s]*:[^\s'\x22`\\,;)]\S*"
)
_USER = rf"(?i)((?<!abfs)(?<!abfss){_HOST})[^/\s]*@"  # for abfs it is the container
_PASSWORD = (  # of a URL that was cut, or with a slash: what is after the colon is no port
    rf"(?i)({_HOST}(?!arn:)(?:\[[^]\s/]*\]|[^/\s:\[]*)):(?=\d*[^\s\d/?#:;,.'\x22`\\)>\]}}-])\S+"
)
_QUERY = rf"(?i)(https?:/+[^?\s]*)(?:\?\S*?{_END.replace('&', '')})?"
_VALUE = rf"([?&#]([^=?&#\s]+)=)[^&\s]+?{_END}"
_SECRET_NAME = r"(?i)sig|token|secret|key|pass|pwd|cred|sas|auth"


def close(name: str, known: Sequence[str], cutoff: float = 0.5) -> str | None:
    """Find the known name that is nearest, or None if none is near.

    Examples
    --------
    >>> close("gcsw", ["gcws", "fourier"]), close("x", ["gcws", "fourier"])
    ('gcws', None)
    """
    near = difflib.get_close_matches(name, known, n=1, cutoff=cutoff)
    return near[0] if near else None


def read_number(text: str, kind: Callable[[str], Number]) -> Number:
    """Read a number of ASCII text by `kind`, such as int, which alone takes underscores and digits of any script too.

    Raises
    ------
    ValueError
        For other text.

    Examples
    --------
    >>> read_number("+10", int)
    10
    >>> read_number("1_0", int)
    Traceback (most recent call last):
    ValueError: '1_0' is not a number such as 10 or 0.5; write it in the digits 0 to 9, without underscores
    """
    if "_" in text or not text.isascii():
        raise ValueError(
            f"{text!r} is not a number such as 10 or 0.5; write it in the digits 0 to 9, without underscores"
        )
    return kind(text)


def percent(share: float) -> str:
    """Write a share as a percentage, rounded down: only 1 is 100.0%.

    Examples
    --------
    >>> percent(0.97), percent(0.99996), percent(1)
    ('97.0%', '99.9%', '100.0%')
    """
    return f"{floor(1000 * share + 1e-9) / 1000:.1%}"


_FLAG = r" \((--[a-z][^()]*)\)"
_PARAMETER = r"""(?:dkfeat\.)?\w+(?:=(?:"[^"]*"|'[^']*'|[^\s,;()]*(?:\([^()]*\))?))?"""


def in_parameters(text: str) -> str:
    """Leave the flags of the command line out of a message that names both them and the parameters of Python.

    Examples
    --------
    >>> in_parameters('pass on_bad_row="quarantine" (--on-bad-row quarantine) or raise max_bad_rows (--max-bad-rows)')
    'pass on_bad_row="quarantine" or raise max_bad_rows'
    """
    return re.sub(_FLAG, "", text)


def in_flags(text: str) -> str:
    """Leave the parameters of Python out of such a message.

    Examples
    --------
    >>> in_flags('pass on_bad_row="quarantine" (--on-bad-row quarantine) or raise max_bad_rows (--max-bad-rows)')
    'pass --on-bad-row quarantine or raise --max-bad-rows'
    """
    return re.sub(_PARAMETER + _FLAG, r"\1", text)


def counted(number: int, noun: str, *verbs: str) -> str:
    """Write a number with its noun, in the plural unless the number is 1, and with the verb for one or for several.

    Examples
    --------
    >>> counted(1, "shard"), counted(1200, "shard"), counted(2, "process"), counted(2, "file", "is", "are")
    ('1 shard', '1,200 shards', '2 processes', '2 files are')
    """
    plural = "es" if noun.endswith("s") else "s"
    return " ".join([f"{number:,} {noun}{'' if number == 1 else plural}", *verbs[number != 1 :][:1]])


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Lines of a table, with cells padded to columns; `right` holds the numbers, from 0, of right-aligned columns.

    Examples
    --------
    >>> aligned([["map", "rows"], ["gcws", "5"]], right=[1])
    ['map   rows', 'gcws     5']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = ([f"{cell:{'><'[at not in right]}{widths[at]}}" for at, cell in enumerate(row)] for row in rows)
    return ["  ".join(cells).rstrip() for cells in padded]


def show_label(label: float | str) -> str:
    """Write a label, a number or a word, so that different labels differ; integers without a point.

    Examples
    --------
    >>> show_label(9007199254740993), show_label(-1.0), show_label(0.5)
    ('9007199254740993', '-1', '0.5')
    """
    return label if isinstance(label, str) else str(label).removesuffix(".0")


def meant(name: str, known: Sequence[str]) -> str:
    """End of a message that has listed the known names: suggests the nearest one, if any is near.

    Examples
    --------
    >>> meant("rfb", ["rbf", "rbf_cosine"])
    "; did you mean 'rbf'?"
    >>> meant("x", ["rbf", "rbf_cosine"])
    ''
    """
    near = close(name, known)
    return "" if near is None else f"; did you mean {near!r}?"


def nearest(name: str, known: Sequence[str], what: str) -> str:
    """End of a message about an unknown name.

    Examples
    --------
    >>> nearest("gcsw", ["gcws", "fourier"], "maps")
    "did you mean 'gcws'?"
    >>> nearest("x", ["gcws", "fourier"], "maps")
    'the maps are gcws, fourier'
    """
    return meant(name, known).removeprefix("; ") or f"the {what} are {', '.join(known)}"


def without_secrets(text: str) -> str:
    """Remove possible secrets from the URLs in a text: users, passwords, signatures, and all queries of web pages.

    Examples
    --------
    >>> without_secrets("no file matches ftp://user:secret@host/*.svm, nor s3://key:sec/ret@bucket/*.svm")
    'no file matches ftp://host/*.svm, nor s3://...'
    >>> without_secrets("'https://host/rows.svm?X-Amz-Signature=secret'"), without_secrets("az://box/a.svm?sig=x&sv=1")
    ("'https://host/rows.svm'", 'az://box/a.svm?sig=***&sv=1')
    """
    if ":/" in text:
        for pattern, rest in (_STORE, r"\1..."), (_USER, r"\1"), (_PASSWORD, r"\1..."), (_QUERY, r"\1"):
            text = re.sub(pattern, rest, text)
    if "=" in text:
        text = re.sub(_VALUE, lambda found: f"{found[1]}***" if re.search(_SECRET_NAME, found[2]) else found[0], text)
    return text


def printable(text: str) -> str:
    r"""Leave out the secrets in URLs, and escape control characters, which could steer a terminal.

    Examples
    --------
    >>> printable("day-1.svm"), printable("day\x1b[2J.svm"), printable("ftp://user:secret@host/rows.svm")
    ('day-1.svm', 'day\\x1b[2J.svm', 'ftp://host/rows.svm')
    """
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in without_secrets(text))


def printable_lines(text: str) -> str:
    """Make a text of several lines `printable`."""
    return "\n".join(map(printable, text.split("\n")))


def logger_of(module: str) -> logging.Logger:
    """Return the logger of a module, whose records are `printable`.

    Examples
    --------
    >>> logger_of("dkfeat.store").name
    'dkfeat.store'
    """
    logger = logging.getLogger(module)
    logger.addFilter(_show_record)
    return logger


def _show_record(record: logging.LogRecord) -> bool:
    record.msg, record.args = printable(record.getMessage()), ()
    return True


def show_bytes(size: int) -> str:
    """Size in binary units, as options such as `blocksize` take it.

    Examples
    --------
    >>> show_bytes(12), show_bytes(67_108_864)
    ('12 bytes', '64.0 MiB')
    """
    if size < 1024:
        return f"{size} bytes"
    value, units = size / 1024, ["KiB", "MiB", "GiB", "TiB", "PiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        del units[0]
    return f"{value:,.1f} {units[0]}"
