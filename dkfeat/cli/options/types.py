"""Parameter types of the command line: choices, parsed text, lists of numbers, and paths to write to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem

from dkfeat.messages import nearest


class Choice(click.Choice[str]):
    """Parameter type of a few words; the error for any other word names the nearest one.

    Examples
    --------
    >>> Choice(["squared_hinge", "hinge"]).convert("squared", None, None)
    Traceback (most recent call last):
    click.exceptions.BadParameter: there is no 'squared'; did you mean 'squared_hinge'?
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the word."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            raise click.BadParameter(
                f"there is no {str(value)!r}; {nearest(str(value), list(self.choices), 'choices')}", ctx, param
            ) from None


class Text(click.ParamType):
    """Parameter type of text with a custom parser, and words that shells complete.

    Parameters
    ----------
    name : str
        Shown in help pages in place of a value.
    parse : callable
        Returns the value; raises KeyError or ValueError for invalid text.
    expected : str
        End of the error message, after the invalid text, such as "is not a number".
    words : sequence of str
        Words that shells complete.

    Examples
    --------
    >>> kind = Text("number|log2", lambda text: text if text == "log2" else int(text), "is no number", ["log2"])
    >>> kind.convert("7", None, None), kind.convert("log2", None, None)
    (7, 'log2')
    """

    def __init__(
        self, name: str, parse: Callable[[str], Any] = str, expected: str = "", words: Iterable[str] = ()
    ) -> None:
        self.name = name
        self._parse, self._expected, self._words = parse, expected, tuple(words)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse the text."""
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except (KeyError, ValueError):
            self.fail(f"{value!r} {self._expected}", param, ctx)

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:  # noqa: ARG002 - click's
        """Show the words as those of a choice, if the name consists of them."""
        return f"[{self.name}]" if set(self.name.split("|")) <= set(self._words) else None

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002 - click's
        """Return the words that begin with `incomplete`."""
        return [CompletionItem(word) for word in self._words if word.startswith(incomplete)]


def words(values: Mapping[str, Any]) -> Text:
    """Parameter type of words, in upper or lower case, that are converted to these values."""
    *others, last = values
    return Text(
        "|".join(values), lambda text: values[text.lower()], f"is none of {', '.join(others)} and {last}", values
    )


def numbers(kind: Callable[[str], float], example: str) -> Text:
    """Parameter type of numbers separated by commas, as a tuple; error messages show the example."""
    return Text(
        "numbers",
        lambda text: tuple(kind(item) for item in text.split(",")),
        f"is not a list of numbers such as {example}",
    )


class _LocalPath(click.Path):
    """Path on this machine to write to; rejects an empty path, a URL, a file for a folder, and the reverse."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path unchanged if it is valid."""
        from dkfeat.filesystems.urls import is_url, printable

        if not value:
            self.fail("the path is empty; give a name, or . for the current folder", param, ctx)
        if is_url(str(value)):
            self.fail(
                f"{printable(str(value))!r} is a URL, but this option writes to this machine only; give a path",
                param,
                ctx,
            )
        return super().convert(value, param, ctx)


LOCAL_FILE = _LocalPath(dir_okay=False, readable=False)
"""Type of an option that names a file to write."""
LOCAL_FOLDER = _LocalPath(file_okay=False, readable=False)
"""Type of an option that names a folder to write into."""
