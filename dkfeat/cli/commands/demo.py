"""``dkfeat demo``: a first experiment on real data."""

from __future__ import annotations

from pathlib import Path
from textwrap import wrap
from typing import Any

import click

from dkfeat.cli.declared import LOCAL_FOLDER
from dkfeat.cli.group import DkfeatCommand, heading
from dkfeat.cli.options import output_options
from dkfeat.cli.output import JSON, is_given, is_quiet, note, summary
from dkfeat.messages import printable

HELD_OUT = 0.5
"""Share of rows kept for testing."""


@click.command(cls=DkfeatCommand)
@heading("Data and features")
@click.option(
    "--out", type=LOCAL_FOLDER, default="demo", show_default=True, metavar="DIR", help="Folder for all output."
)
@click.option("--n-components", type=int, default=1024, show_default=True, help="Samples for each row.")
@click.option("--i-bits", type=int, default=8, show_default=True, help="Bits kept of each sample.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of all random numbers.")
@output_options
@click.pass_context
def demo(ctx: click.Context, /, out: str, n_components: int, i_bits: int, seed: int) -> None:
    """Run all steps on handwritten digits and compare accuracies.

    A linear model on the features is compared with one on the raw columns. The
    commands that run are shown as you would type them. The rows are part of
    scikit-learn; for your own, run these commands, or `dkfeat compare`.

    For example:
      dkfeat demo
      dkfeat demo --n-components 256 --json
    """
    import shlex

    from dkfeat.store.outputs import check_outside
    from dkfeat.validation import check_integer

    check_integer(seed, "seed", low=0, high=2**64 - 1)
    folder = Path(out) / (f"digits-{seed}" if seed else "digits")
    run_folder = folder / f"k{n_components}-b{i_bits}"
    check_outside(run_folder, kind="a demonstration")
    run_folder.mkdir(parents=True, exist_ok=True)
    train_file, test_file = map(str, _digit_files(folder, seed))
    train_shards, test_shards, model = (str(run_folder / name) for name in ("train", "test", "model"))
    options = ["--n-components", str(n_components), "--i-bits", str(i_bits)]
    assert ctx.parent is not None  # the group that has this command
    for arguments in (
        ["featurize", train_file, "--map", "gcws", *options, "--seed", str(seed), "--out", train_shards],
        ["featurize", test_file, "--like", train_shards, "--out", test_shards],
        ["train", train_shards, "--test", test_shards, "--out", model],
    ):
        note()
        words = ["$ dkfeat", *(printable(shlex.quote(word)).replace(" ", "\0") for word in arguments)]
        lines = wrap(" ".join(words), 76, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
        note(click.style(" \\\n".join(lines).replace("\0", " "), bold=True), raw=True)
        silence = ["--quiet"] if is_quiet() or is_given(JSON) else []
        status = ctx.parent.command.main([*silence, *arguments], prog_name="dkfeat", standalone_mode=False)
        if status:
            ctx.exit(status)
    made = _measure(train_file, test_file, train_shards, model)
    note()
    figures = {
        "test accuracy, linear model on the raw features": f"{made['accuracy_raw']:.2%}",
        "test accuracy, linear model on GCWS features": f"{made['accuracy']:.2%}",
        "bytes per row in the shards": f"{made['bytes_per_row']:,.1f}",
        "shards, plain Parquet": f"{train_shards}/data",
        "model": model,
    }
    summary({**made, "shards": train_shards, "model": model}, figures)
    for line in (
        "",
        "To do the same with your own files:",
        "",
        f"  dkfeat featurize my.svm {' '.join(options)} --out features/my",
        "  dkfeat featurize my-test.svm --like features/my --out features/my-test",
        "  dkfeat train features/my --test features/my-test --out my-model",
    ):
        note(line)


def _digit_files(folder: Path, seed: int) -> tuple[Path, Path]:
    """Return the files of training and test rows; those that `folder` has are left untouched, so are their shards."""
    import numpy as np
    from sklearn.datasets import dump_svmlight_file, load_digits

    from dkfeat.store.manifest.model_folder import LocalFolder

    files = folder / "train.svm", folder / "test.svm"
    for line in ("Handwritten digits of scikit-learn, 1,797 rows of 64 pixels, go to", *files):
        note(str(line))
    pixels, digits = load_digits(return_X_y=True)
    held_out = np.random.default_rng(seed).random(len(digits)) < HELD_OUT
    for file, rows in zip(files, (~held_out, held_out), strict=True):
        if not file.exists():
            with LocalFolder(str(folder)).writing(file.name) as stream:
                dump_svmlight_file(pixels[rows], digits[rows], stream, zero_based=False)
    return files


def _measure(train_file: str, test_file: str, train_shards: str, model_folder: str) -> dict[str, Any]:
    from dkfeat.engine.dataset.dataset import open_shards
    from dkfeat.learn.compare.fits import Fits, FitSettings
    from dkfeat.learn.model import load_model
    from dkfeat.learn.predict import prediction_source

    model = load_model(model_folder)
    data = open_shards(train_shards)
    note(err=True)
    note("A linear model on the raw features, for comparison …", err=True)
    train, test = (prediction_source(model, path) for path in (train_file, test_file))
    return {
        "accuracy_raw": Fits(train, test, FitSettings()).linear().accuracy,
        "accuracy": model.history[-1]["test_accuracy"],
        "bytes_per_row": data.manifest.size / max(1, data.n_rows),
    }
