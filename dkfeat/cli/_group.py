"""Errors of commands, turned into one line on standard error and an exit status."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import IO, TYPE_CHECKING, Any, NoReturn

import click
from click.core import ParameterSource

from dkfeat.cli._help import Helpful, HelpfulGroup
from dkfeat.cli._show import shown
from dkfeat.errors import DkfeatError, ParquetError, ParseError
from dkfeat.wording import close, nearest

if TYPE_CHECKING:
    from dkfeat.engine.log_lines import LogLines

__all__ = ["DkfeatCommand", "DkfeatGroup", "log_of", "set_log", "text_of"]

LOG = "dkfeat.log"
"""Where click's contexts, which share it, keep the `LogLines` that take the place of text on standard error."""

LONGEST = 10_000
"""Characters of a message that are shown; what a library has to say may be as long as its input."""

INTERNAL, MISTAKE, STORAGE, INTERRUPTED, PIPE_CLOSED, TERMINATED = 1, 2, 3, 130, 141, 143
BROKEN_CONFIGURATION = "A dask config file at "
"""Begin of the text with which Dask refuses to be imported; its configuration is the user's."""


class _Terminated(BaseException):
    """SIGTERM came."""


class _TidyUsageError(click.UsageError):
    """A usage error shown as every other error is."""

    def show(self, file: IO[Any] | None = None) -> None:  # noqa: ARG002 - click's signature
        _tell(
            self.ctx, f"{self.ctx.info_name if self.ctx else 'command line'}: {self.format_message()}", self.exit_code
        )
        if self.ctx and log_of(self.ctx) is None:
            click.echo(f"Try '{self.ctx.command_path} --help'.", err=True)


class _Tidy(Helpful):
    """Command whose usage errors are shown as every other error is."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Click's own, with tidy usage errors."""
        with _tidy_usage(lambda: self.context_class(self, info_name=info_name, parent=parent)):
            return super().make_context(info_name, args, parent, **extra)


class DkfeatCommand(_Tidy):
    """Command whose errors become a line on standard error and an exit status, wherever it is mounted."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            with _signals_raised(), _tidy_usage():
                _fill_defaults(ctx)
                result = super().invoke(ctx)
                sys.stdout.flush()  # a reader that has gone is noticed here, not at the end of the process
                return result
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise  # click knows what to do
        except BrokenPipeError:  # `head` has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(PIPE_CLOSED)
        except (ParseError, ParquetError) as error:
            _fail(ctx, text_of(error), error.exit_code)  # it begins with its own place
        except DkfeatError as error:
            _fail(ctx, f"{ctx.info_name}: {text_of(error)}", error.exit_code)
        except KeyboardInterrupt:
            _fail(ctx, f"{ctx.info_name}: interrupted; run the same command again to go on", INTERRUPTED)
        except _Terminated:
            _fail(ctx, f"{ctx.info_name}: terminated; run the same command again to go on", TERMINATED)
        except OSError as error:
            _fail(ctx, f"{ctx.info_name}: {text_of(error)}", STORAGE)
        except Exception as error:
            if str(error).startswith(BROKEN_CONFIGURATION):
                _fail(ctx, f"{ctx.info_name}: {text_of(error)}", MISTAKE)
            trace = "".join(traceback.format_exception(error))
            what = f"{ctx.info_name}: internal fault: {type(error).__name__}: {text_of(error)}"
            _tell(ctx, what, INTERNAL, trace)
            if log_of(ctx) is None:
                click.echo("This is a fault of dkfeat: please report it, with the lines above.", err=True)
            ctx.exit(INTERNAL)


class DkfeatGroup(_Tidy, HelpfulGroup):
    """Group of commands; an unknown name is answered by the nearest one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command."""
        name = args[0]
        known_or_option = self.get_command(ctx, name) is not None or name.startswith("-")
        if not known_or_option and not ctx.resilient_parsing:  # a shell that completes is told nothing
            known = self.list_commands(ctx)
            message = f"there is no command {name!r}; {nearest(name, known, 'commands')}"
            raise _TidyUsageError(message, ctx)
        return super().resolve_command(ctx, args)


def set_log(ctx: click.Context, log: LogLines) -> None:
    """Let errors of this command, and of those within it, be lines of JSON."""
    ctx.meta[LOG] = log


def log_of(ctx: click.Context) -> LogLines | None:
    """Where this command's lines of JSON go, or None if people read along."""
    return ctx.meta.get(LOG)


def _fail(ctx: click.Context, what: str, status: int) -> NoReturn:
    wanted = any(above.params.get("traceback") for above in _lineage(ctx))
    _tell(ctx, what, status, traceback.format_exc() if wanted else None)
    ctx.exit(status)


def _lineage(ctx: click.Context) -> Iterator[click.Context]:
    above: click.Context | None = ctx
    while above is not None:
        yield above
        above = above.parent


def _tell(ctx: click.Context | None, what: str, status: int, trace: str | None = None) -> None:
    """Write the line, of which no byte can steer a terminal and no part runs to megabytes."""
    what = _cut(what)
    if trace is not None:
        trace = "\n".join(_cut(shown(line)) for line in trace.splitlines()) + "\n"
    if ctx is not None and (log := log_of(ctx)) is not None:
        log("error", level="error", message=what, exit_code=status, traceback=trace)
        return
    color = None if ctx is None else ctx.color
    begin = click.style("dkfeat: error:", fg="red", bold=True)
    click.echo(f"{begin} " + "\n".join(map(shown, what.split("\n"))), err=True, color=color)
    if trace is not None:
        click.echo(trace, err=True, nl=False)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} … ({len(text):,} characters)"


def text_of(error: BaseException) -> str:
    """Join what an error says and the notes that were added to it."""
    return "; ".join([str(error) or type(error).__name__, *getattr(error, "__notes__", ())])


def _fill_defaults(ctx: click.Context) -> None:
    """Report progress as Dask's configuration says, if the command line does not; keep to a block size that it gives.

    All else that is configured is settled where it is used, which cannot tell a block size given from one left out.
    """
    names = {parameter.name for parameter in ctx.command.params}
    if "progress" in names and ctx.get_parameter_source("progress") is ParameterSource.DEFAULT:
        from dkfeat.engine.defaults import read_defaults  # Dask, which help texts do without

        configured = read_defaults().progress
        ctx.params["progress"] = ctx.params["progress"] if configured is None else configured
    if "blocksize" in names and ctx.get_parameter_source("blocksize") is not ParameterSource.DEFAULT:
        import dask

        ctx.with_resource(dask.config.set({"dkfeat.blocksize": None}))


@contextmanager
def _tidy_usage(named: Callable[[], click.Context] | None = None) -> Iterator[None]:
    """Turn usage errors into those of this module; `named` gives the context of one that tells none."""
    try:
        yield
    except _TidyUsageError:
        raise
    except click.exceptions.NoArgsIsHelpError:
        raise  # it shows the help
    except click.UsageError as error:
        ctx = error.ctx or (click.get_current_context(silent=True) if named is None else named())
        message = error.format_message()
        message = message[:1].lower() + message[1:].removesuffix(".")
        if isinstance(error, click.MissingParameter) and error.param is not None:
            message = f"{_name(error.param)} must be given"
        elif isinstance(error, click.BadParameter) and error.param is not None:
            message = f"{_name(error.param)}: {error.message.removesuffix('.')}"
        elif isinstance(error, click.NoSuchOption) and ctx is not None:
            near = close(error.option_name.lstrip("-"), _options(ctx))
            message = f"there is no option {error.option_name!r}"
            message += "" if near is None else f"; did you mean '--{near}'?"
        raise _TidyUsageError(message, ctx) from None


def _name(parameter: click.Parameter) -> str:
    """Name of an option or argument as help texts have it."""
    return parameter.opts[0] if isinstance(parameter, click.Option) else str(parameter.name).upper()


def _options(ctx: click.Context) -> list[str]:
    """Names of the options that a command's help shows, without their dashes."""
    options = [option for option in ctx.command.get_params(ctx) if isinstance(option, click.Option)]
    flags = [flag for option in options if not option.hidden for flag in (*option.opts, *option.secondary_opts)]
    return [flag.removeprefix("--") for flag in flags if flag.startswith("--")]


@contextmanager
def _signals_raised() -> Iterator[None]:
    """Let the first SIGINT or SIGTERM unwind the command, so that workers stop and locks are released.

    A second one ends the process and its workers at once: nothing is lost by that, for the next run takes over.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, _frame: FrameType | None) -> NoReturn:
        for each in former:
            signal.signal(each, _leave)
        raise KeyboardInterrupt if number == signal.SIGINT else _Terminated

    known = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    former = {number: handler for number, handler in known.items() if handler is not signal.SIG_IGN}
    for number in former:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _leave(number: int, _frame: FrameType | None) -> NoReturn:
    if multiprocessing := sys.modules.get("multiprocessing"):  # else there are no workers
        for child in multiprocessing.active_children():
            child.kill()
    os.write(2, b"dkfeat: error: stopped at once; run the same command again to go on\n")
    os._exit(INTERRUPTED if number == signal.SIGINT else TERMINATED)
