"""Nothing that dkfeat reads from disk can run code, and nothing that it writes goes through a link of others."""

import ctypes
import os
import re
import struct
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import dkfeat
from dkfeat.cli.commands.demo import _digit_files
from dkfeat.errors import DkfeatError
from dkfeat.learn.predict import predict_file
from dkfeat.learn.sgd.checkpoint import Checkpoints
from dkfeat.store.outputs import write_output
from jobs.reproduction.parts import write_whole

ROOT = Path(__file__).parents[2]
UNSAFE = re.compile(
    r"\b(pickle|cloudpickle|joblib|marshal|shelve|dill)\b.*\bimport\b(?! dumps$)"
    r"|\bimport\b.*\b(pickle|cloudpickle|joblib|marshal|shelve|dill)\b"
    r"|yaml\.(load|unsafe_load|full_load)\b|allow_pickle\s*=\s*True|(?<![\w.])(eval|exec)\("
)


@pytest.mark.fault("X-07")
@pytest.mark.parametrize("folder", ["dkfeat", "jobs"])
def test_sources__load_nothing_that_can_run(folder):
    sources = sorted((ROOT / folder).rglob("*.py"))
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sources
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if UNSAFE.search(line)
    ]
    assert sources
    assert found == []


MADE, MOVED = 0x100, 0x80  # IN_CREATE and IN_MOVED_TO of inotify
ROWS = "1 1:1\n2 3:2\n" * 20


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    (folder / "rows.svm").write_text(ROWS)
    dart = dkfeat.DartFeatures(8, random_state=0)
    dkfeat.featurize(folder / "rows.svm", folder / "shards", dart, progress=False)
    return dkfeat.train(folder / "shards", dkfeat.SGD(epochs=1), progress=False)


def _predict(name):
    def write(folder, model):
        (folder.parent / "rows.svm").write_text(ROWS)
        predict_file(model, str(folder.parent / "rows.svm"), folder / name)

    return write


WRITERS = {
    "labels.txt": _predict("labels.txt"),
    "labels.csv": _predict("labels.csv"),
    "labels.parquet": _predict("labels.parquet"),
    "page.html": lambda folder, _: write_output(folder / "page.html", "<html>"),
    "part.json": lambda folder, _: write_whole(folder / "part.json", "{}"),
    "train.svm": lambda folder, _: _digit_files(folder, 0),
    "checkpoint": lambda folder, _: Checkpoints(folder, {}).save({}, {"coef": np.ones(9)}),
    "model.json": lambda folder, model: model.save(folder),
}


@pytest.mark.fault("X-13")
@pytest.mark.parametrize("output", WRITERS)
def test_writers__write_through_no_link_whose_name_can_be_guessed(tmp_path, model, output):
    """A first run tells the names of all files that are made; before each later run one of them is a link."""
    notices = ctypes.CDLL(None).inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    folder, victim = tmp_path / "toy", tmp_path / "victim"
    folder.mkdir()
    ctypes.CDLL(None).inotify_add_watch(notices, bytes(folder), MADE | MOVED)
    WRITERS[output](folder, model)
    data, names = os.read(notices, 1 << 20), []
    os.close(notices)
    while data:
        length = struct.unpack_from("iIII", data)[3]
        names.append(data[16 : 16 + length].rstrip(b"\0").decode())
        data = data[16 + length :]
    assert output in names
    for number, name in enumerate(dict.fromkeys(names)):
        if name in ("labels.txt", "labels.csv", "labels.parquet", "page.html"):
            continue  # the user names it, and may name a link
        place = tmp_path / str(number) / "toy"
        place.mkdir(parents=True)
        victim.write_bytes(b"mine")
        (place / name).symlink_to(victim)
        with suppress(DkfeatError):
            WRITERS[output](place, model)
        assert victim.read_bytes() == b"mine", name
        assert not (victim.parent / f"{victim.name}.json").exists()
