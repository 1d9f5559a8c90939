"""``dkfeat compare``: feature maps compared on the rows of a source."""

from __future__ import annotations

from typing import Any

import click

from dkfeat.cli.group import DkfeatCommand, heading
from dkfeat.cli.options.declared import option_of
from dkfeat.cli.options.rows import make_source, source_options
from dkfeat.cli.options.shared import make_solver, output_options, overwrite_option, progress_of, progress_option
from dkfeat.cli.options.types import LOCAL_FOLDER, Choice, numbers
from dkfeat.cli.output import JSON, is_given, is_quiet, note, print_json
from dkfeat.config.train import C_TEXT, CLASS_LOSSES, Liblinear


@click.command(cls=DkfeatCommand)
@click.argument("source", nargs=-1, required=True)
@heading("Comparison")
@click.option("--test", multiple=True, metavar="SOURCE2", help="Rows to test on.  [default: a part of SOURCE, by seed]")
@click.option(
    "--maps", default="gcws,dart,nrff,nystroem-gmm,nystroem-rbf", show_default=True, help="Feature maps; also: rff."
)
@click.option(
    "--k", type=numbers(int, "32,64"), default="32,64,128,256,512,1024", show_default=True, help="Components."
)
@option_of(Liblinear, "C", type=numbers(float, "0.01,1,100"), multiple=False, default=C_TEXT)
@click.option(
    "--gamma",
    type=numbers(float, "0.1,1,10"),
    default="0.1,0.3,1,3,10,30,100,300",
    show_default=True,
    help="Widths of the RBF kernel.",
)
@option_of(Liblinear, "loss", type=Choice(CLASS_LOSSES))
@click.option("--linear/--no-linear", default=True, show_default=True, help="Include a linear model on the raw rows.")
@click.option("--exact/--no-exact", default=None, help="Include exact kernel machines.  [default: up to 3,000 rows]")
@click.option("--minutes", type=float, default=2.0, show_default=True, help="Time for the maps; inf: try all sizes.")
@option_of(Liblinear, "validation_fraction")
@click.option(
    "--test-fraction", type=float, default=0.25, show_default=True, help="Share of SOURCE to test on, without --test."
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed of maps, and of the rows for testing and validation.",
)
@heading("Report")
@click.option("--out", type=LOCAL_FOLDER, metavar="DIR", help="Folder for tables and plot.")
@click.option(
    "--output",
    type=Choice(["text", "json", "csv"]),
    default="text",
    show_default=True,
    help="Form of the table; --json is short for --output json.",
)
@overwrite_option
@source_options
@progress_option("Report each result on standard error.")
@output_options
@click.pass_context
def compare(
    ctx: click.Context,
    /,
    source: tuple[str, ...],
    test: tuple[str, ...],
    maps: str,
    exact: bool | None,
    seed: int,
    out: str | None,
    overwrite: bool,
    output: str,
    progress: bool,
    **options: Any,
) -> None:
    """Compare feature maps on the rows of SOURCE and recommend one.

    A linear model is trained on the features of each map and size. A part of
    the training rows is held out to select C, gamma of RBF kernels, and the
    recommended map: the cheapest one, by bytes and then by time per row, whose
    accuracy is within one standard error of the best. Test rows are only
    scored. Sizes that would take too long are left out. All rows are held in
    memory.

    For example:
      dkfeat compare train.svm --test test.svm --out comparison
      dkfeat compare train.svm --maps gcws,nrff --k 128,512 --C 1,10
    """
    from dkfeat.learn.compare.compare import compare as run
    from dkfeat.learn.compare.result import FILES
    from dkfeat.store.outputs import check_folder

    if out is not None:
        check_folder(out, FILES, inputs=[*source, *test], overwrite=overwrite)  # before the comparison, not after
    of_exact = {None: ["exact-if-small"], True: ["exact"], False: []}[exact]
    comparison = run(
        make_source(source, options),
        test=make_source(test, options) if test else options["test_fraction"],
        maps=[name.strip() for name in maps.split(",")],
        n_components=options["k"],
        solver=make_solver("liblinear", options),
        baselines=["linear"] * options["linear"] + of_exact,
        random_state=seed,
        progress=progress_of(ctx, lambda log: lambda result: log("result", message=result.describe()), wanted=progress),
        **{name: options[name] for name in ("gamma", "minutes")},
    )
    if out is not None:
        comparison.save(out, overwrite=overwrite)
    if output == "json" or is_given(JSON):
        print_json(comparison.to_mapping())
    elif output == "csv" or not is_quiet():
        click.echo(comparison.to_csv() if output == "csv" else comparison.to_text(), nl=False)
    if out is not None:
        note(f"tables and plot are in {out}", err=True)
