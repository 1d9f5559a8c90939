"""Advice on GCWS and darts: the counts and costs behind it, and when plan and featurize give it."""

from __future__ import annotations

import json

import numpy as np
import pytest

import dkfeat
from dkfeat.engine.open import Opened
from dkfeat.engine.plan import MapCosts, estimate_costs
from dkfeat.engine.resolve import inherit
from dkfeat.errors import ParseError
from tests.cli.test_commands import run
from tests.engine.helpers import featurized, gcws

WIDE, NARROW = 1000, 5


@pytest.fixture
def write_rows(tmp_path):
    """Write rows of so many nonzeros, on columns that no other row has or that all rows have."""

    def write_rows(nonzeros, n_rows=10, *, recurring=False, end=""):
        path = tmp_path / "rows.svm"
        starts = [1 if recurring else 1 + row * nonzeros for row in range(n_rows)]
        lines = [" ".join(["1", *(f"{start + j}:1" for j in range(nonzeros))]) for start in starts]
        path.write_text("\n".join(lines) + "\n" + end)
        return path

    return write_rows


def costs_of(source, map=None):
    source = source if isinstance(source, dkfeat.ParquetSource) else dkfeat.LibsvmSource(str(source))
    return estimate_costs(inherit(Opened(source=source, files=source.files()), map or gcws(512)))


@pytest.mark.parametrize(
    ("gcws_us", "dart_us", "cheaper"), [(21, 10, "dart"), (19, 10, None), (10, 19, None), (10, 21, "gcws")]
)
def test_cheaper__beyond_a_factor_of_two(gcws_us, dart_us, cheaper):
    costs = MapCosts(n_rows=1, nonzeros=1.0, uses=1.0, gcws_us=gcws_us, dart_us=dart_us)
    assert costs.cheaper == cheaper


def test_costs__follow_nonzeros_uses_and_components():
    base = {"n_rows": 100, "nnz": 400_000, "n_coordinates": 400_000, "n_components": 512}
    one = MapCosts.of(**base)
    reused, longer, more = (
        MapCosts.of(**{**base, **change})
        for change in ({"n_coordinates": 4_000}, {"nnz": 800_000, "n_coordinates": 800_000}, {"n_components": 4096})
    )
    assert one.cheaper == "dart"
    assert (reused.dart_us, reused.uses) == (one.dart_us, 100)
    assert reused.gcws_us < one.gcws_us / 4
    assert longer.gcws_us == 2 * one.gcws_us
    assert one.dart_us < longer.dart_us < 2 * one.dart_us
    assert np.isclose(more.gcws_us, 8 * one.gcws_us)
    assert np.isclose(more.dart_us, 8 * one.dart_us)  # eight tiles of 512


def test_counts__columns_with_positive_and_with_negative_values_apart(tmp_path):
    path = tmp_path / "rows.svm"
    path.write_text("1 1:1 3:2\n0 1:-1 3:2\n1 3:5 9:1 12:0\n0\n")
    costs = costs_of(path)
    assert (costs.n_rows, costs.nonzeros, costs.uses) == (4, 6 / 4, 6 / 4)


def test_counts__stop_after_the_first_rows_of_a_large_source(write_rows, monkeypatch):
    monkeypatch.setattr("dkfeat.engine.plan._SAMPLE_BYTES", 20_000)
    assert costs_of(write_rows(WIDE, 40)).n_rows < 10


@pytest.mark.parametrize(
    "map", [dkfeat.FourierFeatures(8), gcws(center=1.0)], ids=["another map", "a centre makes rows dense"]
)
def test_costs__are_unknown(write_rows, map):
    assert costs_of(write_rows(WIDE), map) is None


def test_costs__of_rows_without_values_are_unknown(tmp_path):
    path = tmp_path / "rows.svm"
    path.write_text("1\n0\n")
    assert costs_of(path) is None


def test_plan__tells_the_costs_if_they_differ(write_rows):
    for nonzeros, recurring, is_told in ((WIDE, False, True), (NARROW, True, True), (50, False, False)):
        path = write_rows(nonzeros, recurring=recurring)
        plan = dkfeat.plan(path, map=gcws(512), scan=dkfeat.scan(path))
        assert (plan.map_costs.cheaper is not None) == is_told
        assert ("cost      gcws takes about" in plan.describe()) == is_told
    assert dkfeat.plan(path, map=gcws(512)).map_costs is None


def test_plan__object_has_the_costs(write_rows):
    words = ("plan", write_rows(WIDE), "--n-components", 512, "--out", "features", "--json")
    costs = json.loads(run(*words, "--scan").stdout)["map_costs"]
    assert (costs["n_rows"], costs["nonzeros"], costs["uses"]) == (10, WIDE, 1)
    assert costs["gcws_us"] > 2 * costs["dart_us"] > 0
    assert json.loads(run(*words).stdout)["map_costs"] is None


def test_featurize__reads_no_rows_for_advice(write_rows, tmp_path, monkeypatch):
    monkeypatch.setattr("dkfeat.engine.plan.estimate_costs", lambda _: pytest.fail("rows were read"))
    featurized(write_rows(WIDE), tmp_path / "features", progress=True)


def test_costs__of_a_bad_row_are_left_to_the_run(write_rows, tmp_path):
    path = write_rows(WIDE, end="1 x:1\n")
    assert costs_of(path) is None
    with pytest.raises(ParseError, match=r"rows\.svm"):
        featurized(path, tmp_path / "features", progress=True)
