"""Shards feed dask-ml: what docs/how-to/dask-ml.md shows works, and what it warns of still fails."""

from __future__ import annotations

import re

import dask
import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss

import dkfeat
from tests.docs.pages import run_page

pytest.importorskip("dask_ml", reason="dask-ml is an extra")

# no warning of dask-ml's own is an error of ours
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

CENTRES = np.array([[0.3, 1, 0.5, 0.2, 1, 0.9], [1, 0.2, 0.5, 1, 0.3, 0.9]])


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """400 rows of two classes that are easy to tell apart, in six shards."""
    folder = tmp_path_factory.mktemp("dask-ml")
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=400)
    rows = CENTRES[labels] * np.exp(0.5 * rng.standard_normal((400, 6)))
    lines = (
        " ".join([f"{2 * label - 1}", *(f"{column}:{value:.4f}" for column, value in enumerate(row, 1))])
        for label, row in zip(labels.tolist(), rows, strict=True)
    )
    (folder / "rows.svm").write_text("\n".join(lines) + "\n")
    source = dkfeat.LibsvmSource(str(folder / "rows.svm"), blocksize=4_000)
    gcws = dkfeat.GCWSFeatures(n_components=32, i_bits=6, random_state=0)
    dkfeat.featurize(source, folder / "features", gcws, progress=False)
    return dkfeat.open_shards(folder / "features")


def test_page__examples_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with dask.config.set(scheduler="synchronous"):
        run_page("how-to/dask-ml.md")
    numbers = [float(number) for number in re.findall(r"(?:accuracy|score) ([0-9.]+)", capsys.readouterr().out)]
    assert len(numbers) == 4
    assert all(0 <= number <= 1 for number in numbers)
    assert min(numbers[0], numbers[1], numbers[3]) > 0.7  # one class alone is half of the rows


@pytest.mark.cluster
def test_incremental__is_the_estimator_shown_all_chunks(data, cluster_client):
    from dask_ml.wrappers import Incremental

    X, y = data.to_dask(chunk_rows=150)
    wrapped = Incremental(SGDClassifier(random_state=0), scoring="accuracy", shuffle_blocks=False)
    with cluster_client.as_current():
        wrapped.fit(X, y, classes=data.classes)
        score = wrapped.score(X, y)
    alone = SGDClassifier(random_state=0)
    for block, labels in zip(X.blocks, y.blocks, strict=True):
        alone.partial_fit(*dask.compute(block, labels, scheduler="synchronous"), classes=data.classes)
    np.testing.assert_array_equal(wrapped.coef_, alone.coef_)
    assert score == alone.score(*data.to_scipy()) > 0.95


@pytest.mark.cluster
def test_parallel_post_fit__is_the_estimator_on_every_chunk(data, cluster_client):
    from dask_ml import metrics
    from dask_ml.wrappers import ParallelPostFit

    X, y = data.to_dask()
    rows, labels = data.to_scipy()
    alone = SGDClassifier(loss="log_loss", random_state=0).fit(rows, labels)
    wrapped = ParallelPostFit(alone)
    predicted, probabilities = wrapped.predict(X), wrapped.predict_proba(X)
    assert predicted.chunks == y.chunks
    with cluster_client.as_current():
        np.testing.assert_array_equal(predicted.compute(), alone.predict(rows))
        np.testing.assert_array_equal(probabilities.compute(), alone.predict_proba(rows))
        assert metrics.accuracy_score(y, predicted) == alone.score(rows, labels)
        assert metrics.mean_squared_error(y, predicted) == 4 * (1 - alone.score(rows, labels))
        assert metrics.mean_absolute_error(y, predicted, compute=False).compute() == 2 * (1 - alone.score(rows, labels))


def test_page__advice_works(data):
    from dask_ml.model_selection import KFold

    X, y = data.to_dask()
    rows, labels = data.to_scipy()
    with dask.config.set(scheduler="synchronous"):
        chunk = X[:50].compute()
        assert (chunk != rows[:50]).nnz == 0
        assert chunk.indices.dtype == np.int32
        train, test = next(iter(KFold(3).split(X)))
        train, test = (np.asarray(part.compute()) for part in (train, test))
        assert sorted([*train, *test]) == list(range(400))
        np.testing.assert_array_equal(y[train].compute(), labels[train])
    model = SGDClassifier(loss="log_loss", random_state=0).fit(rows, labels)
    assert log_loss(y.compute(scheduler="synchronous"), model.predict_proba(rows)) < 0.5
    np.testing.assert_allclose(sparse.linalg.norm(rows, axis=1), 32**0.5)  # all rows of one length
