"""``dkfeat demo``."""

from __future__ import annotations

import click

from dkfeat.cli._group import DkfeatCommand
from dkfeat.cli._help import heading
from dkfeat.cli._output import as_object, be_quiet, is_quiet, output_options
from dkfeat.cli._values import LOCAL_FOLDER

__all__ = ["demo"]


@click.command(cls=DkfeatCommand)
@heading("The demonstration")
@click.option("--data", metavar="FILE", help="Your LIBSVM file. Default: handwritten digits that scikit-learn brings.")
@click.option("--test", metavar="FILE", help="Held-out rows for it. Default: a random half of FILE, by seed.")
@click.option(
    "--out",
    type=LOCAL_FOLDER,
    default="demo",
    show_default=True,
    metavar="DIR",
    help="Folder for everything that is made.",
)
@click.option("--n-components", type=int, default=1024, show_default=True, help="Samples of a row.")
@click.option("--i-bits", type=int, default=8, show_default=True, help="Bits kept of each sample.")
@click.option("--seed", type=int, default=0, show_default=True, help="Root of all random numbers.")
@output_options
@click.pass_context
def demo(
    ctx: click.Context,
    data: str | None,
    test: str | None,
    out: str,
    n_components: int,
    i_bits: int,
    seed: int,
    as_json: bool,
) -> None:
    """Featurize real data, train on it and show what it gained.

    A linear model on the features is compared with one on the raw columns. The
    commands that run are shown as you would type them.

    For example:
      dkfeat demo
      dkfeat demo --data my.svm
      dkfeat demo --data my.svm --json
    """
    from dkfeat.cli import cli  # which mounts this command
    from dkfeat.demo import run_demo

    if as_json:
        be_quiet(ctx)
    silence = ["--quiet"] if is_quiet(ctx) else []

    def run(arguments: list[str]) -> None:
        status = cli.main([*silence, *arguments], prog_name="dkfeat", standalone_mode=False)
        if status:
            ctx.exit(status)

    made = run_demo(run, data=data, test=test, out=out, n_components=n_components, i_bits=i_bits, seed=seed)
    if as_json:
        as_object(made)
