"""The ``dkfeat`` command; each of its commands is a module beside this one.

Command modules import what they run inside their functions: ``dkfeat --help`` must not wait for Dask, numba,
scikit-learn and pyarrow to load.
"""

from __future__ import annotations

import sys

import click

import dkfeat
from dkfeat.cli._group import DkfeatCommand, DkfeatGroup, set_log, text_of
from dkfeat.cli._output import quiet_option
from dkfeat.cli._values import Choice
from dkfeat.cli.compare import compare
from dkfeat.cli.completion import complete_paths, completion
from dkfeat.cli.config import config
from dkfeat.cli.datasets import datasets
from dkfeat.cli.demo import demo
from dkfeat.cli.doctor import doctor
from dkfeat.cli.evaluate import evaluate
from dkfeat.cli.featurize import featurize, plan
from dkfeat.cli.inspect import inspect
from dkfeat.cli.maintenance import abort, clean
from dkfeat.cli.predict import predict
from dkfeat.cli.quarantine import quarantine
from dkfeat.cli.report import report
from dkfeat.cli.status import status
from dkfeat.cli.train import train
from dkfeat.cli.verify import verify

__all__ = ["DkfeatCommand", "cli", "main", "set_log", "text_of"]


def _set_log_format(ctx: click.Context, _: click.Parameter, value: str) -> None:
    if value == "json":
        from dkfeat.engine.log_lines import LogLines

        log = LogLines(sys.stderr)
        set_log(ctx, log)
        ctx.with_resource(log.collecting())


@click.group(
    "dkfeat", cls=DkfeatGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(dkfeat.__version__, prog_name="dkfeat", message="%(prog)s %(version)s")
@click.option("--traceback", is_flag=True, help="Show where in the code an error arose.")
@quiet_option
@click.option(
    "--log-format",
    type=Choice(["text", "json"]),
    default="text",
    show_default=True,
    is_eager=True,  # errors of the command line too are told that way
    expose_value=False,
    callback=_set_log_format,
    help="How progress, warnings and errors are told on standard error.",
)
def cli(traceback: bool) -> None:
    """Features on which linear learning matches kernel machines, for big data.

    See it work on real data, without any file of yours:
      dkfeat demo

    The same on your LIBSVM files, plain or compressed:
      dkfeat featurize train.svm.xz --n-components 512 --out features/train
      dkfeat featurize test.svm.xz --like features/train --out features/test
      dkfeat train features/train --test features/test --out model
      dkfeat evaluate model features/test --out report
      dkfeat predict model new.svm --out labels.txt

    Results go to standard output, progress and errors to standard error.
    Exit status: 0 done, 1 a fault of dkfeat, 2 bad settings or input data,
    3 storage, 4 conflict with another run, spec or source, 5 workers lost,
    130 or 143 interrupted, 141 nobody reads the output.

    `dkfeat COMMAND --help` tells the rest, with examples.
    """


cli.sections = {
    "Begin here": ("demo", "datasets", "doctor"),
    "From rows to features": ("plan", "featurize", "compare"),
    "Models": ("train", "predict", "evaluate"),
    "What is in a folder, and is it whole": ("inspect", "report", "status", "verify", "quarantine"),
    "Delete what is not needed": ("abort", "clean"),
    "Settings": ("config", "completion"),
}

for command in (
    demo,
    datasets,
    doctor,
    plan,
    featurize,
    train,
    predict,
    compare,
    evaluate,
    inspect,
    report,
    quarantine,
    verify,
    status,
    abort,
    clean,
    config,
    completion,
):
    cli.add_command(command)
complete_paths(cli)


def main() -> None:
    """Run the command line; the exit status tells what became of it."""
    cli(prog_name="dkfeat")
