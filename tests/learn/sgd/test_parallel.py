"""Training on parts of the shards, averaged several times per epoch."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file, load_digits

import dkfeat
from dkfeat import FourierFeatures, GCWSFeatures, LibsvmSource
from dkfeat.config import ExecutionConfig
from dkfeat.engine.clusters.local import local_cluster
from dkfeat.errors import ConfigError, PlanError, SpecConflictError
from dkfeat.learn import checks
from dkfeat.learn.sgd import parallel as averaging
from dkfeat.learn.sgd.descent import DescentConfig, Variant, Weights
from dkfeat.learn.sgd.parallel import assign_shards
from dkfeat.learn.sgd.rows import TrainingRows
from dkfeat.store.shards.reader import ShardReader
from tests.conftest import ROWS, libsvm_text
from tests.engine.helpers import featurized
from tests.faults.processes.saboteurs import KillInEpochs
from tests.learn.fakes import by_sgd, run_epoch


def trained(shards, **options):
    options = {"epochs": 3, "progress": False, "random_state": 5, **options}
    return by_sgd(dkfeat.train, shards, **options)


def bits(model):
    return model.coef.tobytes(), model.intercept.tobytes()


@pytest.fixture(scope="module")
def three_parts(folder):
    return bits(trained(folder, parts=3, scheduler="synchronous"))


@pytest.mark.fault("D-10")
def test_train__a_small_buffer_and_loaders_give_the_same_weights(folder):
    options = {"epochs": 2, "shuffle_rows": ROWS // 5, "validation_fraction": 0.2, "alpha": [1e-6, 1e-4]}
    first, *others = (trained(folder, loaders=loaders, **options) for loaders in (1, 1, 2, 3))
    assert {bits(model) for model in others} == {bits(first)}
    assert all(model.history == first.history for model in others)
    assert bits(trained(folder, **options, random_state=4)) != bits(first)


def test_train__dense_features_are_learnt_saved_and_served(tmp_path):
    digits = load_digits()
    dump_svmlight_file(digits.data, digits.target, str(tmp_path / "digits.svm"), zero_based=False)
    fourier = FourierFeatures(n_components=512, gamma=8.0, random_state=0)
    featurized(LibsvmSource(str(tmp_path / "digits.svm"), n_features=64), tmp_path / "shards", map=fourier)
    model = trained(tmp_path / "shards", epochs=5)
    model.save(tmp_path / "model")
    served = dkfeat.load_model(tmp_path / "model").predict(digits.data)
    X, _ = dkfeat.open_shards(tmp_path / "shards").to_scipy()
    assert np.mean(served == digits.target) > 0.97
    np.testing.assert_array_equal(served, model.classes[(X @ model.coef.T + model.intercept).argmax(axis=1)])


counts = st.lists(st.integers(0, 1000), min_size=1, max_size=40)


@given(counts, st.integers(1, 9), st.integers(0, 2**64 - 1))
def test_assign_shards__balances_every_row_once(rows, n_parts, seed):
    parts = assign_shards(rows, n_parts, seed)
    assert parts == assign_shards(rows, n_parts, seed)
    assert len(parts) == n_parts
    assert sorted(place for places in parts for place in places) == [place for place, count in enumerate(rows) if count]
    assert all(places == sorted(places) for places in parts)
    totals = [sum(rows[place] for place in places) for places in parts]
    # the part with most rows had fewest before its last shard came
    assert max(totals) - min(totals) <= max(rows)


def test_assign_shards__mixes_equal_shards_by_the_seed():
    parts = [assign_shards([10] * 40, 2, seed) for seed in range(20)]
    # an order by place would put all of a sorted source's first half, or every second shard, into one part
    assert len({tuple(first) for first, _ in parts}) == 20
    assert all(len(first) == len(second) == 20 for first, second in parts)


def test_train__parts_give_the_same_bits_on_any_scheduler(folder, three_parts):
    assert bits(trained(folder, parts=3)) == three_parts
    assert bits(trained(folder, parts=3, scheduler="threads", n_workers=2)) == three_parts
    others = [trained(folder), trained(folder, parts=2), trained(folder, parts=3, random_state=6)]
    assert three_parts not in [bits(model) for model in others]


@pytest.mark.cluster
def test_train__with_refit_starts_the_cluster_once(folder, tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(
        "dkfeat.engine.clusters.open.local_cluster", lambda *sizes: started.append(sizes) or local_cluster(*sizes)
    )
    (tmp_path / "cluster.yaml").write_text("{kind: local, n_workers: 2, threads_per_worker: 1}")
    options = {"alpha": [1e-6, 1e-4], "refit": True, "parts": 3}
    model = trained(folder, cluster=str(tmp_path / "cluster.yaml"), **options)
    assert model.training["refit"]
    assert len(started) == 1
    assert bits(model) == bits(trained(folder, scheduler="synchronous", **options))


def test_train__tells_of_parts_and_all_rows(folder):
    model = trained(folder, parts=3)
    assert model.training["parts"] == 3
    assert [entry["rows"] for entry in model.history] == [ROWS] * 3
    assert model.history[-1]["loss"] < model.history[0]["loss"]
    assert "parts" not in trained(folder).training


def test_train__parts_by_default_depend_on_rows_and_shards_alone(folder, tmp_path, monkeypatch, caplog, capsys):
    def parts(n_workers):
        return trained(folder, scheduler="threads", n_workers=n_workers).training["parts"]

    state = {"checkpoint": str(tmp_path / "state"), "progress": True}
    alone = trained(folder, scheduler="threads", n_workers=2, **state)
    assert alone.training["parts"] == 1
    assert "400 rows are one part, trained in this process" in capsys.readouterr().err
    assert bits(alone) == bits(trained(folder, **state)) == bits(trained(folder))  # one descent, also continued
    assert "one part" not in capsys.readouterr().err
    monkeypatch.setattr(averaging, "PART_ROWS", ROWS // 3)
    assert parts(1) == parts(2) == parts(9) == 3
    monkeypatch.setattr(averaging, "PART_ROWS", 2)
    assert parts(2) == dkfeat.open_shards(folder).n_shards
    assert not caplog.records


def test_train__warns_of_parts_with_few_rows(folder, monkeypatch, caplog):
    trained(folder, parts=3)
    assert "parts=3 leaves 133 rows for each part; expect 5 or more points of accuracy less" in caplog.text
    caplog.clear()
    monkeypatch.setattr(averaging, "PART_ROWS", ROWS // 3)
    trained(folder, parts=3)
    assert not caplog.records
    trained(folder, parts=3, validation_fraction=0.25)
    assert "parts=3 leaves 100 rows for each part" in caplog.text


# mean over the steps, parts, least rows of a part and most parts with which all rounds count alike
@pytest.mark.parametrize(
    ("average", "n_parts", "least", "most"),
    [(True, 2, ROWS // 2, 2), (True, 3, ROWS // 2, 3), (True, 3, ROWS // 3, 2), (False, 8, 1, 8)],
)
def test_train__averages_parts_by_rows_with_momentum(average, n_parts, least, most, folder, monkeypatch):
    monkeypatch.setattr(averaging, "PART_ROWS", least)
    monkeypatch.setattr(averaging, "FEW_PARTS", most)
    data = dkfeat.open_shards(folder)
    settings = DescentConfig(
        task="binary",
        classes=data.classes,
        variants=(Variant("hinge", 1e-4), Variant("log_loss", 1e-3)),
        average=average,
        code_bits=6,
        scale=0.25,
    )
    rows = [entry.rows for entry in data.manifest.shards]
    parts, momentum = assign_shards(rows, n_parts, 5), min(0.8, 1 - 1 / n_parts)
    n_rounds = min(4, *(len(shards) for shards in parts))
    zeros = Weights.zeros(settings, data.shape[1])
    table, intercept = np.zeros(zeros.coef.shape), np.zeros(settings.n_lanes)
    before, before_intercept = table, intercept
    mean_table, mean_intercept, seen = table.copy(), intercept.copy(), 0
    for epoch, number in itertools.product(range(2), range(n_rounds)):
        ahead = table + (table - before) * (momentum if epoch else 0)
        ahead_intercept = intercept + (intercept - before_intercept) * (momentum if epoch else 0)
        before, before_intercept = table, intercept
        fresh = Weights.zeros(settings, data.shape[1])
        start = replace(fresh, coef=ahead.astype(np.float32), intercept=ahead_intercept)
        found = []
        for part, shards in enumerate(parts):
            chosen = assign_shards([rows[shard] for shard in shards], n_rounds, 5, epoch, part)[number]
            of_round = [shards[index] for index in chosen]
            of_part = TrainingRows(data, fraction=0, seed=5, shuffle_rows=None, shards=of_round, part=part)
            found.append(run_epoch(start, of_part.epoch(epoch), settings))
        steps = sum(part.steps for part in found)
        table = sum(part.coef.astype(float) * part.steps for part in found) / steps
        intercept = sum(part.intercept * part.steps for part in found) / steps
        if average:
            # with few rows, or many parts, later rounds count more: at equal rows, round t counts t times
            share = steps / (steps + (1 if n_parts == 2 else 0.5) * seen)
            of_round = sum(part.mean_coef.astype(float) * part.steps for part in found) / steps
            mean_table += share * (of_round - mean_table)
            of_round = sum(part.mean_intercept * part.steps for part in found) / steps
            mean_intercept += share * (of_round - mean_intercept)
        seen += steps
    assert seen == 2 * ROWS
    if average:
        table, intercept = mean_table, mean_intercept
    options = {"parts": n_parts, "epochs": 2, "average": average, "validation_fraction": None}
    for lane, variant in enumerate(settings.variants):
        model = trained(folder, loss=variant.loss, alpha=variant.alpha, **options)
        np.testing.assert_allclose(model.coef[0], table[:, lane] * 0.25, atol=1e-5)
        np.testing.assert_allclose(model.intercept, intercept[[lane]], atol=1e-5)


@pytest.mark.parametrize("n_parts", [2, 3])
def test_train__an_epoch_reads_each_shard_once(n_parts, folder, monkeypatch):
    read, names = ShardReader.read, []

    def recorded(reader, entry, *options, **only):
        names.append(entry.name)
        return read(reader, entry, *options, **only)

    monkeypatch.setattr(ShardReader, "read", recorded)
    trained(folder, parts=n_parts, epochs=2, scheduler="synchronous")
    assert Counter(names) == dict.fromkeys(
        (entry.name for entry in dkfeat.open_shards(folder).manifest.shards), 3
    )  # and for the loss


def test_train__holds_out_the_same_rows_in_parts(folder):
    whole = trained(folder, validation_fraction=0.25)
    parts = trained(folder, validation_fraction=0.25, parts=4)
    assert [entry["rows"] for entry in parts.history] == [entry["rows"] for entry in whole.history]
    assert whole.history[0]["rows"] < ROWS
    several = trained(folder, alpha=[1e-6, 1e-2], parts=4)
    assert len(several.training["grid"]) == 2


def test_train__a_round_without_rows_moves_no_weights(folder, monkeypatch):
    first = trained(folder, parts=3, epochs=1, average=False)
    epoch = TrainingRows.epoch
    monkeypatch.setattr(TrainingRows, "epoch", lambda rows, number: iter(()) if number else epoch(rows, number))
    assert bits(trained(folder, parts=3, epochs=2, average=False)) == bits(first)


class Enough(Exception):
    pass


@pytest.mark.fault("P-15")
def test_train__parts_go_on_from_a_checkpoint(folder, three_parts, tmp_path):
    def stop(entry):
        if entry["epoch"] == 2:
            raise Enough

    checkpoint = tmp_path / "state"
    monkey = pytest.MonkeyPatch()
    monkey.setattr("dkfeat.learn.sgd.checkpoint.EVERY_SECONDS", 0.0)
    with monkey.context(), pytest.raises(Enough):
        trained(folder, parts=3, scheduler="synchronous", checkpoint=checkpoint, progress=stop)
    epochs = []
    with pytest.raises(SpecConflictError, match="parts 3, now 2"):
        trained(folder, parts=2, checkpoint=checkpoint)
    model = trained(folder, parts=3, checkpoint=checkpoint, progress=epochs.append)
    monkey.undo()
    assert bits(model) == three_parts
    assert len(epochs) < 3


@pytest.mark.fault("C-07", "D-10")
@pytest.mark.parametrize("parts", [None, 2])
def test_train__keeps_the_shards_it_started_with(parts, tiny_rows, tmp_path):
    X, y = tiny_rows
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "a.svm").write_text(libsvm_text(X[:200], y[:200]))
    source = LibsvmSource(str(tmp_path / "rows" / "*.svm"), blocksize=4096, n_features=X.shape[1], zero_based=False)
    gcws = GCWSFeatures(n_components=16, i_bits=6, random_state=0)
    options = {"client": ExecutionConfig(scheduler="synchronous"), "progress": False}
    first = dkfeat.featurize(source, tmp_path / "out", gcws, **options)
    data = dkfeat.open_shards(tmp_path / "out")
    undisturbed = trained(data, parts=parts, scheduler="synchronous")

    def commit(entry):
        if entry["epoch"] == 1:
            (tmp_path / "rows" / "b.svm").write_text(libsvm_text(X[200:], y[200:]))
            dkfeat.featurize(source, tmp_path / "out", **options)

    model = trained(tmp_path / "out", parts=parts, scheduler="synchronous", progress=commit)
    assert dkfeat.open_shards(tmp_path / "out").n_rows == ROWS
    assert bits(model) == bits(undisturbed)
    assert (model.manifest_sha256, model.training) == (first.sha256, undisturbed.training)
    assert [entry["rows"] for entry in model.history] == [200] * 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"parts": 0}, "parts=0"),
        ({"parts": 2.5}, r"parts=2\.5"),
        ({"parts": 500}, "parts=500, but only .* of the shards have rows"),
        ({"scheduler": "nowhere"}, "scheduler='nowhere'"),
    ],
)
def test_train__refuses_parts(options, words, folder):
    with pytest.raises(ConfigError, match=words):
        trained(folder, **options)


def test_threads__weights_beyond_memory_are_refused(folder, monkeypatch):
    monkeypatch.setattr(checks, "available_bytes", lambda: 600 << 20)
    monkeypatch.setattr(averaging, "BATCHES_BYTES", 1 << 50)
    options = {"parts": 3, "scheduler": "threads"}
    trained(folder, **options, n_workers=2)
    with pytest.raises(PlanError, match=r"3 parts .* needs about 76\d.* MiB .* may be used; run fewer threads"):
        trained(folder, **options, n_workers=4)


@pytest.mark.cluster
def test_cluster__weights_beyond_a_workers_memory_are_refused(folder, cluster_client, monkeypatch):
    for name in ("BUFFERS_BYTES", "BATCHES_BYTES"):  # what a part needs is the smaller of two sums
        monkeypatch.setattr(averaging, name, 1 << 50)
    with pytest.raises(PlanError, match="memory_limit"):
        trained(folder, parts=2, client=cluster_client)


@pytest.mark.cluster
@pytest.mark.parametrize("epochs", [(1,), pytest.param((1, 3, 4), marks=pytest.mark.slow)])
def test_cluster__killed_workers_change_no_bit(epochs, folder, tmp_path):
    """A worker is killed in the middle of a part, in some of the epochs; its part runs elsewhere, with equal bits."""
    with local_cluster(n_workers=2, threads_per_worker=1) as client:
        client.register_plugin(KillInEpochs(epochs, str(tmp_path)))
        model = trained(folder, parts=3, epochs=6, client=client)
    assert {path.name for path in tmp_path.iterdir()} == set(map(str, epochs))
    assert bits(model) == bits(trained(folder, parts=3, epochs=6, scheduler="synchronous"))
