"""Checkpoints: what they hold, what they refuse, and that killing a training loses nothing."""

import json
import re
import signal
import sys

import numpy as np
import pytest

import dkfeat
from dkfeat.errors import CommitError, ConfigError, ShardError, SpecConflictError
from dkfeat.learn.sgd.checkpoint import ALGORITHM, CURRENT, FORMER, Checkpoints
from tests import programs
from tests.learn.fakes import by_sgd

SAVE = Checkpoints.save
ARRAYS = {"coef": np.arange(6, dtype=np.float32).reshape(2, 3), "loss": np.array([0.5])}


@pytest.fixture
def checkpoints(tmp_path):
    return Checkpoints(tmp_path, {"manifest": "ab", "variants": [["hinge", 1e-6]]})


def test_checkpoints__give_back_what_was_saved(checkpoints, tmp_path):
    assert checkpoints.load(dict) is None
    checkpoints.save({"steps": 3, "history": [{"epoch": 1}]}, ARRAYS)
    state, arrays, _ = checkpoints.load(dict)
    assert state == {"steps": 3, "history": [{"epoch": 1}]}
    assert arrays["coef"].tobytes() == ARRAYS["coef"].tobytes()
    assert arrays["coef"].shape == (2, 3)
    assert sorted(path.name for path in tmp_path.iterdir()) == [CURRENT]


@pytest.mark.fault("P-15")
@pytest.mark.parametrize("damage", ["cut", "empty", "flip", "gone"])
def test_checkpoints__a_damaged_one_is_passed_over_for_the_former_one(checkpoints, tmp_path, damage):
    for steps in (1, 2):
        checkpoints.save({"steps": steps}, ARRAYS)
    data = bytearray((tmp_path / CURRENT).read_bytes())
    data[len(data) // 2] ^= 1
    changed = {"cut": data[: len(data) // 2], "empty": b"", "flip": data}
    if damage == "gone":
        (tmp_path / CURRENT).unlink()
    else:
        (tmp_path / CURRENT).write_bytes(bytes(changed[damage]))
    state, *_ = checkpoints.load(dict)
    assert state == {"steps": 1}
    (tmp_path / FORMER).write_bytes(b"x" * 100)
    with pytest.raises(
        ShardError, match=r"damaged; remove the folder, or start again with .*Target\(folder, resume=False\)"
    ):
        checkpoints.load(dict)


@pytest.mark.fault("P-15")
def test_checkpoints__no_bit_flip_passes(checkpoints, tmp_path):
    checkpoints.save({"steps": 1}, ARRAYS)
    whole = (tmp_path / CURRENT).read_bytes()
    for place in range(len(whole)):
        data = bytearray(whole)
        data[place] ^= 1 << place % 8
        (tmp_path / CURRENT).write_bytes(bytes(data))
        with pytest.raises(ShardError, match="truncated or damaged"):
            checkpoints.load(dict)


def test_checkpoints__of_another_training_are_refused(checkpoints, tmp_path):
    checkpoints.save({"steps": 1}, ARRAYS)
    other = Checkpoints(tmp_path, {"manifest": "cd", "variants": [["hinge", 1e-6]]})
    with pytest.raises(SpecConflictError, match=r'another training \(manifest "ab", now "cd"\)'):
        other.load(dict)


def test_checkpoints__of_another_version_of_the_algorithm(checkpoints, tmp_path):
    pins = {"manifest": "ab", "variants": [["hinge", 1e-6]]}
    checkpoints.save({"steps": 1}, ARRAYS)  # as before versions were stored, which counts as version 1
    assert Checkpoints(tmp_path, pins | {ALGORITHM: 1}).load(dict)[0] == {"steps": 1}
    later = Checkpoints(tmp_path, pins | {ALGORITHM: 2})
    with pytest.raises(SpecConflictError, match="is of version 1 of the training algorithm, this dkfeat has version 2"):
        later.load(dict)
    later.save({"steps": 2}, ARRAYS)
    with pytest.raises(SpecConflictError, match="is of version 2 of the training algorithm, this dkfeat has version 1"):
        Checkpoints(tmp_path, pins | {ALGORITHM: 1}).load(dict)


def test_checkpoints__replace_no_file_of_others_and_lie_in_no_data_set(tmp_path):
    (tmp_path / CURRENT).write_text("weights of another program")
    with pytest.raises(ConfigError, match="is not a checkpoint of dkfeat"):
        Checkpoints(tmp_path, {})
    (tmp_path / "shards" / "_dkfeat" / "tmp").mkdir(parents=True)
    with pytest.raises(ConfigError, match="which holds a run"):
        Checkpoints(tmp_path / "shards" / "state", {})


def test_checkpoints__need_a_local_folder(tmp_path):
    with pytest.raises(ConfigError, match="local folder"):
        Checkpoints("s3://bucket/state", {})
    (tmp_path / "file").touch()
    with pytest.raises(CommitError, match="cannot be made"):
        Checkpoints(tmp_path / "file" / "state", {})


@pytest.mark.fault("X-16")
@pytest.mark.parametrize("name", ["coef", "loss_before", "best_coef"])
@pytest.mark.parametrize(
    "forged",
    [np.zeros(3), np.zeros((2, 2), np.int64), np.array(["x"]), None],
    ids=["short", "integers", "text", "none"],
)
def test_train__forged_arrays_with_the_right_checksum_are_refused(folder, tmp_path, monkeypatch, name, forged):
    options = {
        "epochs": 1,
        "patience": 1,
        "validation_fraction": 0.3,
        "progress": False,
        "checkpoint": tmp_path / "state",
    }
    saved = []
    monkeypatch.setattr(Checkpoints, "save", lambda self, *found: (saved.append((self, *found)), SAVE(self, *found)))
    by_sgd(dkfeat.train, folder, **options)
    checkpoints, state, arrays = saved[-1]
    arrays = {key: array for key, array in (arrays | {name: forged}).items() if array is not None}
    SAVE(checkpoints, state, arrays)
    with pytest.raises(ShardError, match=f"{CURRENT}: array {name} is .*, expected float"):
        by_sgd(dkfeat.train, folder, **options)
    SAVE(checkpoints, {**state, "steps": -1}, arrays)
    with pytest.raises(ShardError, match=rf"{CURRENT}: state: .*>= 0 - at `\$\.steps`"):
        by_sgd(dkfeat.train, folder, **options)


PROGRAM = """
import json, sys
from pathlib import Path
import numpy as np
import dkfeat
from dkfeat.learn.sgd import checkpoint, descent, rows
from tests.learn.fakes import by_sgd
checkpoint.EVERY_SECONDS = 0.0  # after each window
descent.WINDOW_ROWS = 90
rows.BATCH_NONZEROS = 40 * 16
shards, out, *rest = sys.argv[1:]
model = by_sgd(dkfeat.train, shards, progress=False, **json.loads(rest[0]))
np.savez(out, coef=model.coef, intercept=model.intercept)
Path(out + ".json").write_text(json.dumps(model.history))
"""


def train_process(shards, out, options, kill=None):
    words = [sys.executable, "-c", PROGRAM, str(shards), str(out), json.dumps(options)]
    return programs.run(words) if kill is None else programs.run_killed(kill, words)


OPTIONS = {
    "epochs": 3,
    "alpha": [1e-6, 1e-3],
    "loss": ["hinge", "log_loss"],
    "validation_fraction": 0.2,
    "patience": 3,
    "random_state": 4,
}


@pytest.mark.slow
@pytest.mark.fault("P-15", "D-10")
@pytest.mark.parametrize(
    "kills",
    [
        ("after_checkpoint:1", "mid_checkpoint:1"),
        pytest.param(("before_checkpoint:2", "between_checkpoints:1"), marks=pytest.mark.slow),
    ],
    ids=lambda kills: " ".join(kills),
)
def test_train__killed_at_any_point_goes_on_to_the_same_weights(kills, folder, tmp_path):
    calm = train_process(folder, tmp_path / "calm.npz", OPTIONS)
    assert calm.status == 0, calm.err
    expected = dict(np.load(tmp_path / "calm.npz"))
    options = OPTIONS | {"checkpoint": str(tmp_path / "state")}
    # each run goes on where the one before was killed
    for kill in kills:
        train_process(folder, tmp_path / "never.npz", options, kill)
        if kill == "after_checkpoint:1":
            assert b'"batches":3' in (tmp_path / "state" / CURRENT).read_bytes()  # within the first epoch
    resumed = train_process(folder, tmp_path / "resumed.npz", options)
    assert resumed.status == 0, resumed.err
    found = dict(np.load(tmp_path / "resumed.npz"))
    assert not (tmp_path / "never.npz").exists()
    for name in ("coef", "intercept"):
        assert found[name].tobytes() == expected[name].tobytes()
    assert (tmp_path / "resumed.npz.json").read_text() == (tmp_path / "calm.npz.json").read_text()
    assert sorted(path.name for path in (tmp_path / "state").iterdir()) == [CURRENT, FORMER]


@pytest.mark.slow
@pytest.mark.fault("C-13")
def test_train__a_second_one_on_a_checkpoint_names_the_first(folder, tmp_path):
    state = tmp_path / "state"
    words = [sys.executable, "-c", PROGRAM, str(folder), str(tmp_path / "first.npz")]
    first = programs.start_until("after_checkpoint:1", [*words, json.dumps({"checkpoint": str(state)})], quiet=True)
    try:
        second = train_process(folder, tmp_path / "second.npz", {"checkpoint": str(state)})
        assert second.status == 1
        assert re.search(rf"TargetBusyError: {state} is being written by run .*pid {first.pid}", second.err)
        assert not (tmp_path / "second.npz").exists()
        first.send_signal(signal.SIGKILL)
        first.wait()
        (state / f".{CURRENT}.tmp").write_bytes(b"cut")  # as killed trainings left it until version 0.2
        assert train_process(folder, tmp_path / "third.npz", {"checkpoint": str(state)}).status == 0
        assert sorted(path.name for path in state.iterdir()) == [CURRENT, FORMER]
    finally:
        first.kill()
