"""``dkfeat demo``: the commands of a first experiment on real data, and a table of accuracies."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dkfeat.cli.declared import LOCAL_FOLDER
from dkfeat.cli.group import DkfeatCommand, heading
from dkfeat.cli.options import output_options
from dkfeat.cli.output import JSON, is_given, is_quiet, note, print_result
from dkfeat.errors import ConfigError, InputError
from dkfeat.messages import shown

if TYPE_CHECKING:
    from dkfeat.learn.model import LinearModel


HELD_OUT = 0.5
"""Share of rows kept for testing."""
READ_BYTES = 1 << 20
MOST_TIMED_ROWS = 20_000
MOST_TIMED_SECONDS = 0.5


@click.command(cls=DkfeatCommand)
@heading("Data and features")
@click.option("--data", metavar="FILE", help="Your LIBSVM file. Left out: handwritten digits, part of scikit-learn.")
@click.option("--test", metavar="FILE", help="Rows to test on. Left out: a random half of FILE, by seed.")
@click.option(
    "--out", type=LOCAL_FOLDER, default="demo", show_default=True, metavar="DIR", help="Folder for all output."
)
@click.option("--n-components", type=int, default=1024, show_default=True, help="Samples for each row.")
@click.option("--i-bits", type=int, default=8, show_default=True, help="Bits kept of each sample.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of all random numbers.")
@output_options
@click.pass_context
def demo(ctx: click.Context, /, **options: Any) -> None:
    """Run all steps on real data and compare accuracies.

    A linear model on the features is compared with one on the raw columns. The
    commands that run are shown as you would type them.

    For example:
      dkfeat demo
      dkfeat demo --data my.svm
      dkfeat demo --data my.svm --json
    """
    import shlex

    silence = ["--quiet"] if is_quiet() or is_given(JSON) else []
    assert ctx.parent is not None  # the group that has this command

    def run(arguments: list[str]) -> None:
        note()
        note(click.style(f"$ dkfeat {shown(shlex.join(arguments))}", bold=True), raw=True)
        status = group.main([*silence, *arguments], prog_name="dkfeat", standalone_mode=False)
        if status:
            ctx.exit(status)

    group = ctx.parent.command
    print_result(run_demo(run, **options))


def run_demo(
    run: Callable[[list[str]], None],
    *,
    data: str | None,
    test: str | None,
    out: str,
    n_components: int,
    i_bits: int,
    seed: int,
) -> dict[str, Any]:
    """Write the rows, run the commands, show the table.

    All files are written below the folder `out`; a second call reuses the shards of the first one.

    Parameters
    ----------
    run : callable
        Runs ``dkfeat`` with the given arguments; an error ends the demo.
    data, test : str or None
        LIBSVM files. Without `data`: scikit-learn's handwritten digits. Without `test`: a random half of
        `data`, by seed.
    out : str
        Folder for the rows, shards and model.
    n_components, i_bits, seed : int
        Parameters of the map; the seed also divides the rows into training and test rows.

    Returns
    -------
    made : dict
        Figures of the table, and the folders.

    Raises
    ------
    ConfigError
        If `test` is given without `data`, or the seed is out of range.
    DkfeatError
        From reading the files.
    """
    from dkfeat.store.outputs import check_outside
    from dkfeat.validation import check_integer

    if data is None and test is not None:
        raise ConfigError("--test needs --data; the digits are divided into training and test rows")
    check_integer(seed, "seed", low=0, high=2**64 - 1)
    folder = Path(out) / _rows_folder(data, test, seed)
    run_folder = folder / f"k{n_components}-b{i_bits}"
    check_outside(run_folder)
    run_folder.mkdir(parents=True, exist_ok=True)
    train_file, test_file = _files(data, test, folder, seed)
    train_shards, test_shards, model_folder = (str(run_folder / name) for name in ("train", "test", "model"))
    _compile(n_components, i_bits)
    options = ["--map", "gcws", "--n-components", str(n_components), "--i-bits", str(i_bits), "--seed", str(seed)]
    run(["featurize", train_file, *options, "--out", train_shards])
    run(["featurize", test_file, "--like", train_shards, "--out", test_shards])
    run(["train", train_shards, "--test", test_shards, "--out", model_folder])
    made = _measure(train_file, test_file, train_shards, test_shards, model_folder)
    _show(made, f"--n-components {n_components} --i-bits {i_bits}")
    return made


def _compile(n_components: int, i_bits: int) -> None:
    """Compile the loops before anything is timed; the machine code is cached, so only the first call is slow."""
    import tempfile

    from dkfeat.maps import GCWSFeatures
    from dkfeat.sources.libsvm.source import LibsvmSource

    note("Compiling the loops, once per machine …")
    with tempfile.TemporaryDirectory() as scratch:
        row = Path(scratch) / "row.svm"
        row.write_text("1 1:1\n", encoding="ascii")
        source = LibsvmSource(str(row), n_features=1, zero_based=False, label_dtype="int64")
        (piece,) = source.read(source.splits()[0])
    GCWSFeatures(n_components, i_bits=i_bits).fit_width(1).encode(piece.block.X)


def _rows_folder(data: str | None, test: str | None, seed: int) -> str:
    """Name of the folder for these rows; changed files get another name, so that shards always match their rows."""
    if data is None:
        return f"digits-{seed}" if seed else "digits"
    from dkfeat.canonical import fingerprint
    from dkfeat.sources.libsvm.source import LibsvmSource

    paths = [data] if test is None else [data, test]
    identities = [file.identity for path in paths for file in LibsvmSource(path).files()]
    stem = re.sub(r"[^A-Za-z0-9_-]", "-", Path(data).name.split(".")[0])
    return f"{stem}-{fingerprint([*identities, seed])[:8]}"


def _files(data: str | None, test: str | None, folder: Path, seed: int) -> tuple[str, str]:
    if data is not None and test is not None:
        return data, test
    train_file, test_file = folder / "train.svm", folder / "test.svm"
    if data is None:
        note(f"Handwritten digits of scikit-learn, 1,797 rows of 64 pixels, go to {train_file} and {test_file}.")
        lines: Iterable[bytes] = _digit_lines()
    else:
        note(f"A random half of the rows of {data} goes to {test_file}, the others to {train_file}.")
        lines = _lines_of(data)
    n_train, n_test = _divide(lines, train_file, test_file, seed)
    if not n_train or not n_test:
        raise InputError(f"{data}: {n_train + n_test} rows are too few to hold some out; give --test")
    note(f"{n_train:,} rows to train on, {n_test:,} held out.")
    return str(train_file), str(test_file)


def _digit_lines() -> list[bytes]:
    from sklearn.datasets import dump_svmlight_file, load_digits

    text = io.BytesIO()
    dump_svmlight_file(*load_digits(return_X_y=True), text, zero_based=False)
    return text.getvalue().splitlines(keepends=True)


def _lines_of(data: str) -> Iterator[bytes]:
    """Rows of a file as lines, decompressed, without blank and comment lines."""
    from dkfeat.sources.files.contents import open_content
    from dkfeat.sources.libsvm.source import LibsvmSource

    for file in LibsvmSource(data).files():
        with open_content(file) as stream:
            buffer, rest = memoryview(bytearray(READ_BYTES)), b""
            while n_bytes := stream.readinto(buffer):
                *lines, rest = (rest + bytes(buffer[:n_bytes])).split(b"\n")
                yield from (line + b"\n" for line in lines if line.split(b"#")[0].strip())
            if rest.split(b"#")[0].strip():
                yield rest + b"\n"


def _divide(lines: Iterable[bytes], train_file: Path, test_file: Path, seed: int) -> tuple[int, int]:
    """Split lines between two files by seed; a file that already has its lines is left untouched."""
    import filecmp

    import numpy as np

    random = np.random.default_rng(seed)
    counts = [0, 0]
    temporary = [path.with_name(path.name + ".tmp") for path in (train_file, test_file)]
    with temporary[0].open("wb") as train, temporary[1].open("wb") as test:
        for line in lines:
            side = int(random.random() < HELD_OUT)
            counts[side] += 1
            (train, test)[side].write(line)
    for made, path in zip(temporary, (train_file, test_file), strict=True):
        if not path.exists():
            made.replace(path)
            continue
        same = filecmp.cmp(made, path, shallow=False)
        made.unlink()  # an unchanged source keeps its time stamp, so its shards count as done
        if not same:
            raise ConfigError(f"{path} exists and has other rows; remove it, or choose another folder with --out")
    return counts[0], counts[1]


def _measure(train_file: str, test_file: str, train_shards: str, test_shards: str, model_folder: str) -> dict[str, Any]:
    from dkfeat.engine.dataset.dataset import open_shards
    from dkfeat.learn.compare.models import linear_accuracy
    from dkfeat.learn.model import load_model
    from dkfeat.learn.predict import prediction_source

    model = load_model(model_folder)
    data, held_out = open_shards(train_shards), open_shards(test_shards)
    source, test_source = (prediction_source(model, path) for path in (train_file, test_file))
    note(err=True)
    note("A linear model on the raw features, for comparison …", err=True)
    raw = linear_accuracy(source, test_source)
    runs = [opened.manifest.run for opened in (data, held_out)]  # right also for shards of an earlier demo
    times = [datetime.fromisoformat(run["ended"]) - datetime.fromisoformat(run["started"]) for run in runs]
    seconds = sum(time.total_seconds() for time in times)
    return {
        "accuracy_raw": raw,
        "accuracy": model.history[-1]["test_accuracy"],
        "rows_per_second": (data.n_rows + held_out.n_rows) / max(seconds, 1e-3),
        "rows_per_second_of_a_core": _encoding_speed(model, source),
        "bytes_per_row": data.manifest.size / max(1, data.n_rows),
        "shards": train_shards,
        "model": model_folder,
    }


def _encoding_speed(model: LinearModel, source: Any) -> float:
    """Measure how many rows a second the map encodes once its loops are compiled."""
    split = source.splits()[0]
    X = next(iter(source.read(split))).block.X[:MOST_TIMED_ROWS]
    model.map.encode(X[:1])
    rows, started = 0, time.perf_counter()
    while (seconds := time.perf_counter() - started) < MOST_TIMED_SECONDS:
        model.map.encode(X)
        rows += X.shape[0]
    return rows / seconds


def _show(made: dict[str, Any], options: str) -> None:
    table = {
        "test accuracy, linear model on the raw features": f"{made['accuracy_raw']:.2%}",
        "test accuracy, linear model on GCWS features": f"{made['accuracy']:.2%}",
        "rows per second, text to shards": f"{made['rows_per_second']:,.0f}",
        "rows per second, features alone, on one core": f"{made['rows_per_second_of_a_core']:,.0f}",
        "bytes per row in the shards": f"{made['bytes_per_row']:,.1f}",
        "shards, plain Parquet": f"{made['shards']}/data",
        "model": made["model"],
    }
    width = max(map(len, table))
    rule = "─" * (width + 3 + max(map(len, table.values())))
    note()
    note(rule)
    for name, value in table.items():
        note(f"{name:<{width}}   {click.style(value, bold=True)}", raw=True)
    for line in (rule, "", "To do the same with your own files:", ""):
        note(line)
    for command in (
        f"dkfeat featurize my.svm {options} --out features/my",
        "dkfeat featurize my-test.svm --like features/my --out features/my-test",
        "dkfeat train features/my --test features/my-test --out my-model",
    ):
        note(click.style(f"  {command}", bold=True), raw=True)
