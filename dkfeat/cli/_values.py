"""Values of options that several commands read in one way."""

from __future__ import annotations

from typing import Any

import click
from click.shell_completion import CompletionItem

from dkfeat.wording import nearest

__all__ = ["LOCAL_FILE", "LOCAL_FOLDER", "Choice", "Numbers", "Words"]


class Choice(click.Choice[str]):
    """One of a few words; another one is answered by the nearest.

    Examples
    --------
    >>> Choice(["squared_hinge", "hinge"]).convert("squared", None, None)
    Traceback (most recent call last):
    click.exceptions.BadParameter: there is no 'squared'; did you mean 'squared_hinge'?
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Take the word."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            message = f"there is no {str(value)!r}; {nearest(str(value), list(self.choices), 'choices')}"
            raise click.BadParameter(message, ctx, param) from None


class Words(click.ParamType):
    """Any text, of which shells complete some words; who takes it says which others are allowed.

    Parameters
    ----------
    known : str
        Words that are offered.
    """

    name = "text"

    def __init__(self, *known: str) -> None:
        self.known = known

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:  # noqa: ARG002 - click's
        """Show the few words that there are as those of a choice are shown."""
        return f"[{self.name}]" if set(self.name.split("|")) <= set(self.known) else None

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002 - click's
        """Offer the words that begin so."""
        return [CompletionItem(word) for word in self.known if word.startswith(incomplete)]


class Numbers(click.ParamType):
    """Numbers between commas, as a tuple.

    Parameters
    ----------
    kind : int or float
        What each of them is.
    """

    name = "numbers"

    def __init__(self, kind: type[int] | type[float]) -> None:
        self._kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        """Read the text."""
        if isinstance(value, tuple):
            return value
        try:
            return tuple(self._kind(item) for item in str(value).split(","))
        except ValueError:
            example = "32,64" if self._kind is int else "0.01,1,100"
            self.fail(f"{value!r} is not a list of numbers such as {example}", param, ctx)


class _LocalPath(click.Path):
    """A place on this machine to write to; a URL, or what is there of the other kind, is refused before any work."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Take the path as it is."""
        from dkfeat.io.remote import is_url  # fsspec, which help texts do without

        if is_url(str(value)):
            self.fail(f"{value!r} is a URL, but this is written on this machine alone; give a path", param, ctx)
        return super().convert(value, param, ctx)


LOCAL_FILE = _LocalPath(dir_okay=False, readable=False)
"""Type of an option that names a file to write."""
LOCAL_FOLDER = _LocalPath(file_okay=False, readable=False)
"""Type of an option that names a folder to write into."""
