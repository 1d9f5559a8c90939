"""The ``dkfeat`` command; its commands are in the folder ``commands``.

Command modules import slow libraries inside functions, so that ``dkfeat --help`` does not wait for Dask, numba,
scikit-learn and pyarrow to load.
"""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from pathlib import Path

import click

import dkfeat
from dkfeat.cli.commands.demo import demo
from dkfeat.cli.commands.doctor import doctor
from dkfeat.cli.commands.explain import explain
from dkfeat.cli.commands.featurize import featurize, plan
from dkfeat.cli.commands.inspect import files, inspect, quarantine, report, status
from dkfeat.cli.commands.maintenance import abort, break_lock, clean, verify
from dkfeat.cli.commands.neighbors import drop_duplicates, duplicates, neighbors
from dkfeat.cli.commands.predict import evaluate, predict
from dkfeat.cli.commands.run import run
from dkfeat.cli.commands.train import compare, train
from dkfeat.cli.declared import Choice
from dkfeat.cli.group import LOG, DkfeatCommand, DkfeatGroup
from dkfeat.cli.options import quiet_option
from dkfeat.cli.terminal import guarded_stderr

__all__ = ["DkfeatCommand", "cli", "main"]


def _set_log_format(ctx: click.Context, _: click.Parameter, value: str) -> None:
    if value == "json":
        from dkfeat.cli.output import LogLines

        log = LogLines(sys.stderr)
        ctx.meta[LOG] = log
        ctx.with_resource(log.collecting())


@click.group(
    "dkfeat", cls=DkfeatGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(dkfeat.__version__, prog_name="dkfeat", message="%(prog)s %(version)s")
@click.option("--traceback", is_flag=True, help="Show the traceback of an error.")
@quiet_option
@click.option(
    "--log-format",
    type=Choice(["text", "json"]),
    default="text",
    show_default=True,
    is_eager=True,  # set first, so that errors in the command line have this format too
    expose_value=False,
    callback=_set_log_format,
    help="Form of progress, warnings and errors on standard error.",
)
def cli(traceback: bool) -> None:
    """Turn tables, texts and sparse rows into features, and learn from these.

    Linear models of the features come close to kernel machines. The features
    also find near neighbours and duplicates. Files may be of any size.

    Try it on real data, without a file of your own:
      dkfeat demo

    The same on your files, Parquet, JSON lines or LIBSVM text:
      dkfeat featurize train.svm.xz --n-components 512 --out features/train
      dkfeat featurize test.svm.xz --like features/train --out features/test
      dkfeat train features/train --test features/test --out model
      dkfeat evaluate model features/test --out report
      dkfeat predict model new.svm --out labels.txt

    Results go to standard output, progress and errors to standard error.
    Exit status: 0 done, 1 internal error, 2 bad settings or input data,
    3 storage, 4 conflict with another run, spec or source, 5 workers lost,
    130 or 143 interrupted, 141 output closed by its reader.

    `dkfeat COMMAND --help` has examples; that of a command with many options
    names `--help-all`, which has them all.
    """


_SECTIONS: dict[str, tuple[click.Command, ...]] = {
    "First steps": (demo, doctor),
    "From rows to features": (plan, featurize, compare),
    "Models": (train, predict, evaluate, explain),
    "Neighbours and duplicates": (neighbors, duplicates, drop_duplicates),
    "Content and state of a folder": (inspect, report, status, files, verify, quarantine),
    "Cleaning up": (abort, clean, break_lock),
    "Settings": (run,),
}
for title, commands in _SECTIONS.items():
    for command in commands:
        vars(command)["section"] = title  # its heading in the help page
        cli.add_command(command)


def main() -> None:
    """Run the command line, and exit with the status that its help names."""
    for name, mode in {"stdin": "r", "stdout": "w", "stderr": "w"}.items():
        if getattr(sys, name) is None:  # closed: the next file that is opened would get its descriptor
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - open until the end
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # for characters that its encoding does not have
    with guarded_stderr():
        cli(prog_name="dkfeat")
