"""Features of a few rows, kept for ever: other values need another version number of the map.

    python -m tests.maps.test_known_answers laplace '{"kernel": "reciprocal"}'

adds what a new map, parameter or version gives to tests/data/map_answers; what is there never changes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from tests.maps.small import FEATURE_MAPS, rows_for, small_map

FOLDER = Path(__file__).parent.parent / "data" / "map_answers"
SHOWN = 12


def kept(name: str) -> list[dict]:
    path = FOLDER / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else []


def rows() -> np.ndarray:
    """Five rows of seven columns from 0 to 2, by arithmetic alone; one is empty."""
    X = np.array([[(17 * row + 5 * column) % 13 / 6 for column in range(7)] for row in range(5)])
    X[3] = 0
    return X


def answer(name: str, params: dict) -> list:
    X = rows_for(FEATURE_MAPS[name], rows())
    Z = small_map(name, n_components=32, random_state=0x0123456789ABCDEF, **params).fit(X).transform(X)
    if sp.issparse(Z):
        return [row.indices[:SHOWN].tolist() for row in sp.csr_matrix(Z)]
    Z = Z @ Z.T if name == "nystroem" else Z[:, :SHOWN]  # eigenvectors have no sign of their own
    return [[float(f"{value:.6g}") for value in row] for row in Z.tolist()]


@pytest.mark.fault("D-11")
@pytest.mark.parametrize("name", FEATURE_MAPS)
def test_features__never_change(name):
    cases = [case for case in kept(name) if case["version"] == FEATURE_MAPS[name].version]
    assert cases, f"{FOLDER} lacks answers of this version: python -m tests.maps.test_known_answers {name}"
    for case in cases:
        found, features = answer(name, case["params"]), case["features"]
        if FEATURE_MAPS[name].layout == "codes":
            assert found == features
        else:
            np.testing.assert_allclose(found, features, rtol=2e-4, atol=2e-5, err_msg=str(case["params"]))
        assert any(any(row) for row in features)


def main(name: str, params: str = "{}") -> None:
    case = {"version": FEATURE_MAPS[name].version, "params": json.loads(params)}
    others = [other for other in kept(name) if {**other, "features": None} == {**case, "features": None}]
    assert not others, "the answer is kept already"
    cases = [*kept(name), case | {"features": answer(name, case["params"])}]
    FOLDER.joinpath(f"{name}.json").write_text("[\n" + ",\n".join(map(json.dumps, cases)) + "\n]\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
