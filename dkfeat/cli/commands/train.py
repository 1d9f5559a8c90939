"""``dkfeat train`` and ``dkfeat compare``: linear models on shards, and feature maps compared by such models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from dkfeat.cli.declared import LOCAL_FOLDER, Choice, numbers, option_of, options_of
from dkfeat.cli.group import DkfeatCommand, heading
from dkfeat.cli.options import (
    execution_options,
    make_solver,
    options_at,
    output_options,
    overwrite_option,
    progress_of,
    progress_option,
    storage_option,
)
from dkfeat.cli.output import JSON, echo, is_given, is_quiet, note, print_json, summary
from dkfeat.cli.rows import encoder_options, make_encoder, make_source, source_options
from dkfeat.config import ExecutionConfig
from dkfeat.config.train import C_TEXT, CLASS_LOSSES, REAL_LOSSES, SGD, Liblinear, TrainConfig
from dkfeat.messages import read_number

if TYPE_CHECKING:
    from dkfeat.learn.model import LinearModel


@click.command(cls=DkfeatCommand)
@click.argument("shards")
@heading("Test and validation")
@option_of(TrainConfig, "test", metavar="DIR")
@option_of(TrainConfig, "validation", metavar="DIR")
@options_of(SGD, "validation_fraction", "refit")
@heading("Model")
@option_of(TrainConfig, "out", metavar="MODEL")
@option_of(TrainConfig, "overwrite")
@option_of(SGD, "task")
@option_of(SGD, "loss", type=Choice(CLASS_LOSSES + REAL_LOSSES), multiple=True)
@click.option(
    "--class-weight",
    metavar="LABEL=WEIGHT",
    multiple=True,
    help="Weight of the rows of a class; repeatable. Or balanced, given once.",
)
@click.option(
    "--solver",
    type=Choice(["sgd", "liblinear"]),
    default="sgd",
    show_default=True,
    help="sgd reads shard by shard; liblinear finds the optimum with all features in memory.",
)
@heading("Solver sgd")
@option_of(TrainConfig, "init", metavar="MODEL")
@options_of(SGD, "alpha", "epochs", "patience", "average", "shuffle_rows", "loaders")
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Seed of the order of rows and of the rows held out."
)
@heading("Solver liblinear")
@option_of(Liblinear, "C", "--C", type=numbers(float, "0.01,1,100"), multiple=False, default=C_TEXT)
@heading("Interrupted runs")
@option_of(TrainConfig, "checkpoint", metavar="DIR")
@option_of(TrainConfig, "resume")
@heading("Parallel training")
@option_of(SGD, "parts")
@heading("Store")
@storage_option("SHARDS and --out")
@execution_options
def train(shards: str, out: str | None, **options: Any) -> None:
    """Train a linear model on the shards in folder SHARDS.

    Rows are read shard by shard, so the data need not fit in memory. Labels are
    classes, lists of classes, or numbers (--task regression).

    For example:
      dkfeat train features/train --test features/test --out model
      dkfeat train features/train --loss log_loss --epochs 5 --out model
      dkfeat train features/train --alpha 1e-6 --alpha 1e-5 --out model
      dkfeat train features/train --n-workers 4 --out model
      dkfeat train features/train --solver liblinear --C 0.01,1,100 --out model
    """
    options["class_weight"] = _class_weight(options["class_weight"])
    options["solver"] = make_solver(options["solver"], options)
    options["random_state"] = options.pop("seed")
    model, last = train_and_save(shards, out, **ExecutionConfig.gather(options))
    classes = {} if model.task == "regression" else {"classes": f"{len(model.classes):,}"}
    shown = {"rows": f"{last['rows']:,}", "task": model.task, **classes, "epochs": f"{len(model.history):,}"}
    if "grid" in model.training:
        name = "C" if "C" in model.training else "alpha"
        shown["chosen"] = f"{model.training['loss']}, {name} {model.training[name]:g}"
    shown |= shown_scores(last, "validation") | shown_scores(last, "test")
    record = {
        "model": out,
        "task": model.task,
        "rows": last["rows"],
        "classes": len(model.classes),
        "epochs": len(model.history),
        "training": dict(model.training),
        "scores": {name: value for name, value in last.items() if name.startswith(("validation_", "test_"))},
    }
    summary(record, shown | {"model": out or "not saved; give --out MODEL to keep it"})


def shown_scores(last: Mapping[str, Any], part: str) -> dict[str, str]:
    """Return the scores of a training on "validation" or "test" rows as text, by their names."""
    forms = {f"{part}_accuracy": ".2%", f"{part}_r2": ".4f"}
    return {name: format(last[name], form) for name, form in forms.items() if last.get(name) is not None}


def train_and_save(
    shards: Any,
    out: str | None,
    *,
    overwrite: bool,
    checkpoint: str | None,
    resume: bool,
    storage_options: Mapping[str, Any] | None,
    progress: bool,
    **options: Any,
) -> tuple[LinearModel, Mapping[str, Any]]:
    """Train a model, with further `options` of `dkfeat.train`, and save it unless `out` is None.

    Returns
    -------
    model : LinearModel
    entry : mapping
        Entry of its history for the epoch that it is from.
    """
    from dkfeat.engine.dataset.dataset import open_shards
    from dkfeat.engine.open import Target
    from dkfeat.learn.model import check_replaces, check_target, settings_of
    from dkfeat.learn.train import train as run

    of_shards = options_at(shards, storage_options)
    if out is not None:  # before the training, not after
        check_target(out, storage_options, checkpoint)
        overwrite = overwrite or options["init"] is not None
        if not overwrite:
            shards = open_shards(shards, storage_options=of_shards)  # once, also for the training
            settings = settings_of(options["solver"], options["random_state"])
            check_replaces(out, storage_options, shards.spec["map"], settings)
    model = run(
        shards,
        checkpoint=None if checkpoint is None else Target(checkpoint, resume=resume),
        storage_options=of_shards,
        progress=progress_of(
            click.get_current_context(), lambda log: lambda entry: log("epoch", **entry), wanted=progress
        ),
        **options,
    )
    if out is not None:
        model.save(out, overwrite=overwrite, storage_options=storage_options)
    return model, next(entry for entry in model.history if entry["epoch"] == model.training["epoch"])


def _class_weight(given: tuple[str, ...]) -> str | dict[str, float] | None:
    """Parse the values of --class-weight."""
    if given == ("balanced",):
        return "balanced"
    weights: dict[str, float] = {}
    for item in given:
        label, equals, weight = item.rpartition("=")
        if label in weights:
            raise click.UsageError(f"--class-weight gives the label {label} twice; give each label one weight")
        try:
            weights[label] = read_number(weight if equals else "", float)
        except ValueError:
            raise click.UsageError(
                f"--class-weight {item}: expected LABEL=WEIGHT such as 1=2.5 or yes=3, or balanced alone"
            ) from None
    return weights or None


@click.command(cls=DkfeatCommand)
@click.argument("source", nargs=-1, required=True)
@heading("Comparison")
@click.option("--test", multiple=True, metavar="SOURCE2", help="Rows to test on.  [default: a part of SOURCE, by seed]")
@click.option(
    "--maps",
    default="gcws,gcws-rank,dart,nrff,nystroem-gmm,nystroem-rbf",
    show_default=True,
    help="Feature maps; also: rff.",
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
@overwrite_option
@source_options
@encoder_options
@progress_option("Report each result on standard error.")
@output_options
@click.pass_context
def compare(
    ctx: click.Context, /, source: tuple[str, ...], test: tuple[str, ...], out: str | None, **options: Any
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
    from dkfeat.learn.compare.comparison import FILES
    from dkfeat.store.outputs import check_folder

    if out is not None:
        check_folder(
            out, FILES, kind="a comparison", inputs=[*source, *test], overwrite=options["overwrite"]
        )  # before the comparison, not after
    of_exact = {None: ["exact-if-small"], True: ["exact"], False: []}[options["exact"]]
    encoder = make_encoder(options)
    given = {} if encoder == "auto" else {"encoder": encoder}
    rows = [make_source(paths, options).replaced(**given) for paths in (source, test) if paths]
    comparison = run(
        rows[0],
        test=rows[1] if test else options["test_fraction"],
        maps=[name.strip() for name in options["maps"].split(",")],
        n_components=options["k"],
        solver=make_solver("liblinear", options),
        baselines=["linear"] * options["linear"] + of_exact,
        random_state=options["seed"],
        progress=progress_of(
            ctx, lambda log: lambda found: log("result", message=found.describe()), wanted=options["progress"]
        ),
        **{name: options[name] for name in ("gamma", "minutes")},
    )
    if out is not None:
        comparison.save(out, overwrite=options["overwrite"])
    if is_given(JSON):
        print_json(comparison.to_mapping())
    elif not is_quiet():
        for line in comparison.to_text().splitlines():
            echo(line)
    if out is not None:
        note(f"tables and plot are in {out}", err=True)
