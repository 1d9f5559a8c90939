"""Help texts: line by line as docstrings have them, with options and commands under headings."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import click

__all__ = ["TOLD", "Helpful", "HelpfulGroup", "heading", "together"]

Command = TypeVar("Command", bound=Callable[..., Any])

_HEADINGS: dict[click.Parameter, str] = {}
"""Heading of each option that has one."""
UNNAMED = "Options"
TOLD = "What is told"
"""Heading of the options that say what a command prints."""
WIDEST = 26
"""Columns of the longest option that has its help beside it; longer ones have it below."""
_NUMBERS = re.compile(" (INTEGER( RANGE)?|FLOAT( RANGE)?)$")


def heading(text: str) -> Callable[[Command], Command]:
    """Put the options that follow, up to the next heading, under one of their own in the help text.

    Examples
    --------
    >>> @click.command(cls=Helpful)
    ... @heading("Output")
    ... @click.option("--out", help="Folder.")
    ... @heading("Training")
    ... @click.option("--epochs", help="Passes over the rows.")
    ... def work(out, epochs):
    ...     "Work."
    >>> print(click.unstyle(work.get_help(click.Context(work, info_name="work"))))
    Usage: work [OPTIONS]
    <BLANKLINE>
      Work.
    <BLANKLINE>
    Output:
      --out TEXT     Folder.
    <BLANKLINE>
    Training:
      --epochs TEXT  Passes over the rows.
      --help         Show this message and exit.
    """

    def put(command: Command) -> Command:
        for option in getattr(command, "__click_params__", ()):  # where click's decorators collect them
            if isinstance(option, click.Option):
                _HEADINGS.setdefault(option, text)
        return command

    return put


def together(command: Command, *options: Callable[[Command], Command]) -> Command:
    """Give a command several options and headings, in this order."""
    for option in reversed(options):
        command = option(command)
    return command


class _Formatter(click.HelpFormatter):
    """Headings in bold, on terminals that show it."""

    def write_heading(self, heading: str) -> None:
        """Write the heading of a section."""
        self.write(f"{'':>{self.current_indent}}{click.style(f'{heading}:', bold=True)}\n")


class _Context(click.Context):
    formatter_class = _Formatter


class Helpful(click.Command):
    """Command whose help text is its docstring, examples included, and whose options stand under headings."""

    context_class = _Context

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Click's own, without colours where the environment asks for none."""
        if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
            extra.setdefault("color", False)
        return super().make_context(*args, **extra)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        """Write the help text."""
        formatter.write("\n")
        for line in inspect.cleandoc(self.help or "").splitlines():
            formatter.write(f"  {line}".rstrip() + "\n")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options below their headings, in the order in which these come first; what is told comes last."""
        sections: dict[str, list[tuple[str, str]]] = {}
        last = UNNAMED
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx) if isinstance(option, click.Option) else None
            if record is not None:
                if option is not self.get_help_option(ctx):
                    last = _HEADINGS.get(option, UNNAMED)
                elif TOLD in sections:
                    last = TOLD
                sections.setdefault(last, []).append((_NUMBERS.sub(" N", record[0]), record[1]))
        sections[TOLD] = sections.pop(TOLD, [])
        _write_sections(formatter, sections.items())


class HelpfulGroup(Helpful, click.Group):
    """Group whose commands stand under headings too."""

    sections: Mapping[str, tuple[str, ...]] = {}
    """Names of commands by heading; those that are none of them come last."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, which are what is looked for, and then the options."""
        named = {name for names in self.sections.values() for name in names}
        rest = tuple(name for name in self.list_commands(ctx) if name not in named)
        found = {
            title: [(name, self.commands[name].get_short_help_str(200)) for name in names if name in self.commands]
            for title, names in (*self.sections.items(), ("More" if named else "Commands", rest))
        }
        _write_sections(formatter, found.items())
        super().format_options(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write nothing: `format_options` has written them, above the options."""


def _write_sections(formatter: click.HelpFormatter, sections: Iterable[tuple[str, list[tuple[str, str]]]]) -> None:
    """Write sections whose second columns stand below each other."""
    shown = [(title, rows) for title, rows in sections if rows]
    width = max((len(name) for _, rows in shown for name, _ in rows if len(name) <= WIDEST), default=WIDEST)
    for title, rows in shown:
        with formatter.section(title):
            formatter.write_dl([(f"{name:<{width}}", text) for name, text in rows], col_max=width)
