"""The page of the command line: sections and tables of what the commands state, so that the page cannot lag behind."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import click
from sphinx.application import Sphinx

from dkfeat.cli import cli
from dkfeat.cli.group import UNNAMED

PAGE = "reference/command-line"
_FLAG = re.compile(r"(?<![\w`-])(--[a-z][\w-]*)")
_DEFAULT = re.compile(r"  \[(?:default: ([^]]*?))?(?:; )?(x>=(\d+))?\]$")
_NO_VALUE = re.compile(r"[.;,] (?:[Ll]eft out:|[Bb]y default,?) (.*?)\.?$")

Row = tuple[str, str, str]
"""An option: its flags and value, meaning and default."""
Group = tuple[str, tuple[Row, ...]]
"""A heading with its options."""


def text_of(text: str) -> str:
    r"""Text as Markdown, flags as code.

    Examples
    --------
    >>> print(text_of("Number of columns, at most 2**63 - 1; as --like has them."))
    Number of columns, at most 2\*\*63 - 1; as `--like` has them.
    """
    parts = re.split("(`[^`]*`)", text)
    parts[::2] = [_FLAG.sub(r"`\1`", re.sub(r"[*<>|$\[\]_]", r"\\\g<0>", part)) for part in parts[::2]]
    return "".join(part.replace("|", "\\|") if part.startswith("`") else part for part in parts)


def code(text: str) -> str:
    """Text as code in the cell of a table."""
    return f"`{text}`".replace("|", "\\|")


def row_of(option: click.Option, record: tuple[str, str]) -> Row:
    """Split the text of an option.

    Examples
    --------
    >>> row_of(click.Option(["--p"]), ("--p FLOAT", "Power, by default one.  [x>=1]"))
    ('`--p NUMBER`', 'Power; at least 1.', 'one')
    """
    flags, text = re.sub(" (INTEGER( RANGE)?|FLOAT( RANGE)?)$", " NUMBER", record[0]), record[1]
    default = "required" if option.required else "off" if option.is_flag and not option.secondary_opts else "none"
    text, least = text.removesuffix("  [required]"), None
    if found := _DEFAULT.search(text):
        text, least = text[: found.start()], found[3]
        if found[1]:
            default = "<br>".join(text_of(part) if " " in part else code(part) for part in found[1].split("; "))
    if default == "none" and (found := _NO_VALUE.search(text)):
        text, default = f"{text[: found.start()]}.", text_of(found[1])
    flags = "<br>".join(code(part) for part in re.split(", (?=-)| / ", flags))
    return flags, text_of(f"{text.removesuffix('.')}; at least {least}." if least else text), default


def groups(command: click.Command) -> dict[str, tuple[Row, ...]]:
    """Options of a command by heading, as ``--help-all`` has them, without those for help."""
    ctx, found = click.Context(command), {}
    for option in command.get_params(ctx):
        record = option.get_help_record(ctx) if isinstance(option, click.Option) else None
        if record is not None and option is not command.get_help_option(ctx) and option.name != "help_all":
            assert isinstance(option, click.Option)
            title = "Progress" if option.name == "progress" else getattr(option, "heading", UNNAMED)
            found.setdefault(title, []).append(row_of(option, record))
    return {title: tuple(rows) for title, rows in found.items()}


def table(rows: tuple[Row, ...]) -> list[str]:
    """Lines of a table of options."""
    return ["| option | meaning | default |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows), ""]


def description(command: click.Command) -> Iterator[str]:
    """Lines of a command's text, examples as code."""
    for part in re.split(r"(?m)((?:^  .*\n+)+)", inspect.cleandoc(command.help or "") + "\n"):
        if part.startswith("  "):
            language = "sh" if "dkfeat " in part else "yaml"
            yield from ("", f"```{language}", textwrap.dedent(part).strip(), "```", "")
        else:
            yield text_of(part)


def page() -> str:
    """Text of the page after its title."""
    commands = {f"dkfeat {name}": command for name, command in cli.commands.items()}
    for name, command in [*commands.items()]:
        commands |= {f"{name} {part}": inner for part, inner in getattr(command, "commands", {}).items()}
    of = {name: groups(command) for name, command in commands.items()}
    users: dict[Group, list[str]] = {}
    for name, found in of.items():
        for group in found.items():
            users.setdefault(group, []).append(name)
    shared = [group for group, names in users.items() if len(names) > 2 and len(group[1]) > 1]
    lines = [*description(cli), "| command | what it does |", "|---|---|"]
    for name, command in commands.items():
        lines.append(f"| [`{name}`](#{name.replace(' ', '-')}) | {text_of(command.get_short_help_str(200))} |")
    lines += ["", "Options before the name of a command:", "", *table(groups(cli)[UNNAMED])]
    for section in dict.fromkeys(vars(command)["section"] for command in cli.commands.values()):
        lines += [f"## {section}", ""]
        for name, command in commands.items():
            if vars(cli.commands[name.split()[1]])["section"] != section:
                continue
            arguments = " ".join(command.collect_usage_pieces(click.Context(command)))
            lines += [f"### `{name}`", "", "```text", f"{name} {arguments}", "```", "", *description(command), ""]
            more = []
            for group in of[name].items():
                title, rows = group
                label = f"options-{[*users].index(group)}"
                if group in shared or (len(rows) > 1 and name != users[group][-1]):  # a table stands once
                    more.append(f"[{title}](#{label})")
                else:
                    lines += [f"({label})="] * (name == users[group][-1]) + [f"**{title}**", "", *table(rows)]
            lines += [f"More options: {', '.join(more)}.", ""] if more else []
    lines += ["## Options of several commands", ""]
    for group in shared:
        names = ", ".join(f"`{name}`" for name in users[group])
        lines += [f"(options-{[*users].index(group)})=", f"### {group[0]}", "", f"Of {names}.", "", *table(group[1])]
    return "\n".join(lines)


def read(_: Sphinx, docname: str, source: list[str]) -> None:
    """Complete the page."""
    if docname == PAGE:
        source[0] += page()


def setup(app: Sphinx) -> dict[str, Any]:
    """Complete the page when it is read."""
    app.connect("source-read", read)
    app.connect("env-get-outdated", lambda *_: [PAGE])  # any module of the command may have changed
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
