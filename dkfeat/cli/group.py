"""Command classes: help pages with headings, one-line errors on standard error, and exit statuses."""

from __future__ import annotations

import inspect
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from copy import copy
from functools import partial
from types import FrameType
from typing import IO, TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from dkfeat.cli.output import QUIET
from dkfeat.cli.terminal import guarded_stderr, sign_of_life, wrapped
from dkfeat.errors import DkfeatError, ParquetError, ParseError
from dkfeat.messages import close, in_flags, in_parameters, nearest, printable_lines, read_number

if TYPE_CHECKING:
    from dkfeat.cli.output import LogLines


Command = TypeVar("Command", bound=Callable[..., Any])

OUTPUT = "Output"
"""Heading of the options that control a command's output; this section comes last."""
UNNAMED = "Options"
WIDEST = 26
"""Maximum width, in columns, of an option with its help text beside it; wider ones have it on the next line."""
_RARE = re.compile(
    "Feature map (laplace|maclaurin|nystroem)|Format jsonl|p|center|kernel|projection|n_mixtures|t_bits|code|delta"
    "|layout|(target|storage)_options|blocksize|dtype|labels|label_dtype|zero_based|multilabel|query_(id|column)"
    "|features_as|column_scale|on_changed_source|scheduler_file|cluster|threads_per_worker|resume"
)
"""Headings, and names of options, that a help page leaves out unless it is asked for all."""
ALL = "dkfeat.help-all"
_NUMBERS = re.compile(" (INTEGER( RANGE)?|FLOAT( RANGE)?)$")

PATHS = {"CONF", "DIR", "DIR|FILE", "FILE", "FILES", "MODEL", "RUN", "SHARDS", "SOURCE", "SOURCE2", "TARGET"}
"""Metavars, and names of arguments, that mark paths, globs and URLs."""

_OTHER_NAMES = {"o": "out", "k": "n-neighbors", "random-state": "seed", "target": "out", "output": "out"}
LOG = "dkfeat.log"
"""Key in `click.Context.meta` of the `LogLines`, whose JSON lines replace text on standard error."""
LONGEST = 10_000
"""Maximum characters shown of a message; the message of a library may be as long as its input."""
INTERNAL, MISTAKE, STORAGE, INTERRUPTED, PIPE_CLOSED, TERMINATED = 1, 2, 3, 130, 141, 143
BROKEN_CONFIGURATION = "A dask config file at "
"""Start of the message when Dask cannot be imported because the user's Dask configuration is broken."""


def heading(text: str) -> Callable[[Command], Command]:
    """Put the options that follow, up to the next heading, under a heading in the help page.

    Examples
    --------
    >>> @click.command(cls=DkfeatCommand)
    ... @heading("Target")
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
    Target:
      --out TEXT     Folder.
    <BLANKLINE>
    Training:
      --epochs TEXT  Passes over the rows.
      --help         Show this message and exit.
    """

    def put(command: Command) -> Command:
        for option in getattr(command, "__click_params__", ()):  # where click's decorators collect them
            vars(option).setdefault("heading", text)
        return command

    return put


def apply_options(command: Command, *options: Callable[[Command], Command]) -> Command:
    """Add several options and headings to a command, in this order."""
    for option in reversed(options):
        command = option(command)
    return command


def late(options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Make these options when the parameters of a command are first used, not when its module is imported."""

    def put(command: Command) -> Command:
        vars(command).setdefault("__click_params__", []).append(options)
        return command

    return put


def _convert_number(kind: click.ParamType, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
    try:
        return kind.convert(read_number(value, str) if isinstance(value, str) else value, param, ctx)
    except ValueError as error:
        kind.fail(str(error), param, ctx)


def _completed(parameter: click.Parameter) -> click.Parameter:
    """Let shells complete a parameter whose metavar or name marks it as a path, and read numbers by `read_number`."""
    if isinstance(parameter.type, click.types.IntParamType | click.types.FloatParamType):
        kind, parameter.type = parameter.type, copy(parameter.type)
        parameter.type.convert = partial(_convert_number, kind)  # type: ignore[method-assign]  # keeps click's help page
    is_argument = isinstance(parameter, click.Argument)
    written = parameter.metavar or (str(parameter.name).upper() if is_argument else "")
    if parameter.type is click.STRING and written in PATHS:
        parameter.type = click.Path(readable=False)  # which checks nothing
    return parameter


def _made(parameters: Iterable[Any]) -> Iterator[click.Parameter]:
    """Yield parameters; in the place of a function of `late`, those that it makes."""
    for parameter in parameters:
        if isinstance(parameter, click.Parameter):
            yield _completed(parameter)
        else:

            def collect() -> None:
                """Collect options, as click's decorators do."""

            parameter(collect)
            yield from _made(reversed(vars(collect)["__click_params__"]))


def log_of(ctx: click.Context) -> LogLines | None:
    """Log that was set for this command; None if messages are plain text."""
    return ctx.meta.get(LOG)


def text_of(error: BaseException) -> str:
    """Return the text of an error, with its notes."""
    text = str(error.args[0] if isinstance(error, DkfeatError) else error)
    return "; ".join([text or type(error).__name__, *getattr(error, "__notes__", ())])


class _Terminated(BaseException):
    """Raised when SIGTERM arrives."""


class _UsageError(click.UsageError):
    """Usage error, shown like every other error."""

    def show(self, file: IO[Any] | None = None) -> None:  # noqa: ARG002 - click's signature
        place = self.ctx.info_name if self.ctx else "command line"
        _write_error(self.ctx, f"{place}: {self.format_message()}", self.exit_code)
        if self.ctx and log_of(self.ctx) is None:
            click.echo(f"Try '{self.ctx.command_path} --help'.", err=True)


class _Base(click.Command):
    """Command with its docstring as help page, options under headings, and one-line usage errors."""

    _params: list[Any]
    _has_late = True

    @property
    def params(self) -> list[click.Parameter]:
        """Arguments and options; late ones are made when they are first used."""
        if self._has_late:
            self._params, self._has_late = list(_made(self._params)), False
        return self._params

    @params.setter
    def params(self, given: list[click.Parameter]) -> None:
        self._params = given

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Make click's context, with one-line usage errors, and without colours if the environment turns them off."""
        if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
            extra.setdefault("color", False)
        try:
            with _one_line_usage(lambda: click.Context(self, info_name=info_name, parent=parent)):
                return super().make_context(info_name, args, parent, **extra)
        except BrokenPipeError:
            raise click.exceptions.Exit(_discard_output()) from None
        except OSError as error:  # of --help and --version, which are printed here, onto a full disk for instance
            _write_error(parent, f"{info_name}: {text_of(error)}", STORAGE)
            raise click.exceptions.Exit(STORAGE) from None

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        """Write the docstring line by line, examples included."""
        formatter.write("\n")
        for line in inspect.cleandoc(self.help or "").splitlines():
            formatter.write(f"  {line}".rstrip() + "\n")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options below their headings, in order of first use; output options come last."""
        sections: dict[str, list[tuple[str, str]]] = {}
        last = UNNAMED
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx) if isinstance(option, click.Option) else None
            if record is not None and (ALL in ctx.meta or not _is_rare(option)):
                if option not in (self.get_help_option(ctx), _HELP_ALL):
                    last = getattr(option, "heading", UNNAMED)
                elif OUTPUT in sections:
                    last = OUTPUT
                sections.setdefault(last, []).append((_NUMBERS.sub(" N", record[0]), record[1]))
        sections[OUTPUT] = sections.pop(OUTPUT, [])
        _write_sections(formatter, sections.items())


def _is_rare(option: click.Parameter) -> bool:
    return any(_RARE.fullmatch(text) for text in (str(option.name), getattr(option, "heading", "")))


def _show_all(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        ctx.meta[ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


_HELP_ALL = click.Option(
    ["--help-all"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_all,
    help="Show all options, also those left out here.",
)


class DkfeatCommand(_Base):
    """Command that turns every error into a line on standard error and an exit status, inside any group."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters; if the help page leaves some out, also the option that shows all."""
        *found, own = super().get_params(ctx)
        return [*found, *[_HELP_ALL] * any(map(_is_rare, found)), own]

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            is_silent = log_of(ctx) is not None or ctx.meta.get(QUIET) or ctx.params.get("progress") is False
            alive = nullcontext() if is_silent else sign_of_life(str(ctx.info_name))
            with _signals_raised(), _one_line_usage(), guarded_stderr(partial(_with_flags, ctx)), alive:
                result = super().invoke(ctx)
                sys.stdout.flush()  # so that a closed pipe is noticed here, not at the end of the process
                return result
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise  # handled by click
        except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
            ctx.exit(_discard_output())
        except KeyboardInterrupt:
            _fail(ctx, f"{ctx.info_name}: interrupted; {_again(ctx)}", INTERRUPTED)
        except _Terminated:
            _fail(ctx, f"{ctx.info_name}: terminated; {_again(ctx)}", TERMINATED)
        except Exception as error:
            has_place = isinstance(error, ParseError | ParquetError)  # the text begins with the file and line
            if status := _exit_status(error):
                _fail(ctx, text_of(error) if has_place else f"{ctx.info_name}: {text_of(error)}", status)
            trace = "".join(traceback.format_exception(error))
            text = f"{ctx.info_name}: internal error: {type(error).__name__}: {text_of(error)}"
            _write_error(ctx, text, INTERNAL, trace)
            if log_of(ctx) is None:
                click.echo("This is an error of dkfeat: please report it, with the lines above.", err=True)
            ctx.exit(INTERNAL)


class DkfeatGroup(_Base, click.Group):
    """Group of commands under headings; the error for an unknown command names the nearest one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command."""
        name = args[0]
        known_or_option = self.get_command(ctx, name) is not None or name.startswith("-")
        if not known_or_option and not ctx.resilient_parsing:  # no error during shell completion
            known = self.list_commands(ctx)
            raise _UsageError(f"there is no command {name!r}; {nearest(name, known, 'commands')}", ctx)
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, then the options."""
        found: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            section = vars(command).get("section", "Commands")
            found.setdefault(section, []).append((name, command.get_short_help_str(200)))
        _write_sections(formatter, found.items())
        super().format_options(ctx, formatter)


def _write_sections(formatter: click.HelpFormatter, sections: Iterable[tuple[str, list[tuple[str, str]]]]) -> None:
    """Write sections with aligned second columns."""
    filled = [(title, rows) for title, rows in sections if rows]
    width = max((len(name) for _, rows in filled for name, _ in rows if len(name) <= WIDEST), default=WIDEST)
    for title, rows in filled:
        formatter.write_paragraph()
        formatter.write(click.style(f"{title}:", bold=True) + "\n")
        with formatter.indentation():
            formatter.write_dl([(f"{name:<{width}}", text) for name, text in rows], col_max=width)


def _again(ctx: click.Context) -> str:
    """Return what to do after an interruption: runs that commit, and trainings with a checkpoint, can be continued."""
    begins_anew = "overwrite" in ctx.params and not ctx.params.get("checkpoint", "resume" in ctx.params)
    return f"run the same command again{'' if begins_anew else ' to continue'}"


def _discard_output() -> int:
    """Replace a standard output whose reader has closed it, and return the exit status."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return PIPE_CLOSED


def _exit_status(error: Exception) -> int:
    """Return the exit status of an error; 0 for an internal one."""
    if isinstance(error, DkfeatError):
        return error.exit_code
    if isinstance(error, OSError):
        return STORAGE
    return MISTAKE if str(error).startswith(BROKEN_CONFIGURATION) else 0


def _fail(ctx: click.Context, text: str, status: int) -> NoReturn:
    _write_error(
        ctx, _with_flags(ctx, text), status, traceback.format_exc() if ctx.find_root().params.get("traceback") else None
    )
    ctx.exit(status)


def _with_flags(ctx: click.Context, text: str) -> str:
    """Replace names of settings in a message by the flags of a command; those of a job file are its keys."""
    if "conf" in ctx.params or text.startswith("Traceback "):
        return in_parameters(text).replace("=True", ": true")
    flags = {str(option.name): option for option in ctx.command.params if isinstance(option, click.Option)}
    flags |= {of: flags[name] for name, of in {"seed": "random_state", "out": "target"}.items() if name in flags}
    for name in ("n_workers", "threads_per_worker", "memory_limit") if ctx.params.get("cluster") else ():
        flags.pop(name, None)  # its file has keys of these names
    text = re.sub(r"(?<=[,;] )(map\.params|training)\.(?=[\w.]+: )", "", in_flags(text))
    for name in flags.keys() & set(re.findall(r"\w+", text)):
        end = r"(?![\w/-]|\.\w)" if "_" in name else r"(?==(?![^\s,;'\"]*/))"  # no words of prose or folders label=1
        end = "=True" if flags[name].is_flag else end
        text = re.sub(rf"(?<![\w./'\"-])(?<!column ){name}{end}", flags[name].opts[0], text)
    return text


def _write_error(ctx: click.Context | None, text: str, status: int, trace: str | None = None) -> None:
    """Write the error line, without control characters and secrets, and cut to a maximum length."""
    text = _cut(printable_lines(text))
    if trace is not None:
        trace = "\n".join(map(_cut, printable_lines(trace).split("\n")))
    if ctx is not None and (log := log_of(ctx)) is not None:
        log("error", level="error", message=text, exit_code=status, traceback=trace)
        return
    color = None if ctx is None else ctx.color
    begin = "dkfeat: error:"
    shown = wrapped(f"{begin} {text}", sys.stderr).removeprefix(begin)
    click.echo(click.style(begin, fg="red", bold=True) + shown, err=True, color=color)
    if trace is not None:
        click.echo(trace, err=True, nl=False)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} … ({len(text):,} characters)"


@contextmanager
def _one_line_usage(named: Callable[[], click.Context] | None = None) -> Iterator[None]:
    """Turn click's usage errors into `_UsageError`; `named` returns the context of an error that has none."""
    try:
        yield
    except (_UsageError, click.exceptions.NoArgsIsHelpError):  # the second one shows the help page
        raise
    except click.UsageError as error:
        ctx = error.ctx or (click.get_current_context(silent=True) if named is None else named())
        message = error.format_message()
        message = message[:1].lower() + message[1:].removesuffix(".")
        if isinstance(error, click.MissingParameter) and error.param is not None:
            message = f"{_name(error.param)} must be given"
        elif isinstance(error, click.BadParameter) and error.param is not None:
            message = f"{_name(error.param)}: {error.message.removesuffix('.')}".replace("integer range", "integer")
        elif isinstance(error, click.NoSuchOption) and ctx is not None:
            message = f"there is no option {error.option_name!r}{_similar(ctx, error.option_name.lstrip('-'))}"
        raise _UsageError(message, ctx) from None


def _name(parameter: click.Parameter) -> str:
    """Name of an option or argument as in help pages."""
    return parameter.opts[0] if isinstance(parameter, click.Option) else str(parameter.name).upper()


def _similar(ctx: click.Context, name: str) -> str:
    """End of a message about an unknown option: suggests a similar one, or one whose help has its words."""
    options = [each for each in ctx.command.get_params(ctx) if isinstance(each, click.Option) and not each.hidden]
    flags = {flag: each for each in options for flag in (*each.opts, *each.secondary_opts) if flag.startswith("--")}
    found = _OTHER_NAMES.get(name) or close(name, [flag.removeprefix("--") for flag in flags], cutoff=0.6)
    words = re.compile(rf"\b{re.escape(name)}\b".replace("\\-", "[- ]"), re.IGNORECASE)
    if found is None or f"--{found}" not in flags:
        with_words = (flag for flag, each in flags.items() if words.search(" ".join(each.get_help_record(ctx) or ())))
        found = next(with_words, "").removeprefix("--") if name[1:] else ""  # x is in "x>=1"
    return f"; did you mean '--{found}'?" if found else ""


@contextmanager
def _signals_raised() -> Iterator[None]:
    """Raise an exception at the first SIGINT or SIGTERM, so that workers stop and locks are released.

    A second signal ends the process and its workers at once. Nothing is lost, because the next run resumes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, _frame: FrameType | None) -> NoReturn:
        for each in former:
            signal.signal(each, _exit_at_once)
        if urls := sys.modules.get("dkfeat.filesystems.urls"):  # without this module no request is under way
            urls.interrupted.set()
        raise KeyboardInterrupt if number == signal.SIGINT else _Terminated

    known = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    former = {number: handler for number, handler in known.items() if handler is not signal.SIG_IGN}
    for number in former:
        signal.signal(number, stop)
    try:
        yield
    finally:
        if urls := sys.modules.get("dkfeat.filesystems.urls"):
            urls.interrupted.clear()
        for number, handler in former.items():
            signal.signal(number, handler)


def _exit_at_once(number: int, _frame: FrameType | None) -> NoReturn:
    if multiprocessing := sys.modules.get("multiprocessing"):  # without this module there are no workers
        for child in multiprocessing.active_children():
            child.kill()
    os.write(2, b"dkfeat: error: stopped at once; run the same command again to continue\n")
    os._exit(INTERRUPTED if number == signal.SIGINT else TERMINATED)
