"""Features of a few rows, kept for ever: other values need another version number of the map.

    python -m tests.maps.test_known_answers

adds what a new map, parameter or version gives to tests/data/map_answers.json; what is there never changes.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from dkfeat.maps import FEATURE_MAPS

KEPT = Path(__file__).parent.parent / "data" / "map_answers.json"
SHOWN = 12
VARIANTS = {
    "fourier": [
        {"projection": name} for name in ("dense", "circulant", "alternating_circulant", "fastfood", "orthogonal")
    ],
    "laplace": [{"kernel": "exponential", "beta": 0.05}, {"kernel": "reciprocal"}],
    "maclaurin": [{}, {"h01": True}],
}
CASES = [(name, params) for name in FEATURE_MAPS for params in VARIANTS.get(name, [{}])]


def rows() -> np.ndarray:
    """Five rows of seven columns from 0 to 2, by arithmetic alone; one is empty."""
    X = np.array([[(17 * row + 5 * column) % 13 / 6 for column in range(7)] for row in range(5)])
    X[3] = 0
    return X


def key(name: str, params: dict) -> str:
    return " ".join([name, f"version {FEATURE_MAPS[name].version}", *(f"{k}={v}" for k, v in params.items())])


def answer(name: str, params: dict) -> list:
    X = rows()
    Z = FEATURE_MAPS[name](n_components=32, random_state=0x0123456789ABCDEF, **params).fit(X).transform(X)
    if sp.issparse(Z):
        return [row.indices[:SHOWN].tolist() for row in sp.csr_matrix(Z)]
    Z = Z @ Z.T if name == "nystroem" else Z[:, :SHOWN]  # eigenvectors have no sign of their own
    return [[float(f"{value:.6g}") for value in row] for row in Z.tolist()]


@pytest.mark.fault("D-11")
@pytest.mark.parametrize(("name", "params"), CASES, ids=[key(*case) for case in CASES])
def test_features__never_change(name, params):
    kept, found = json.loads(KEPT.read_text())[key(name, params)], answer(name, params)
    if FEATURE_MAPS[name].layout == "codes":
        assert found == kept
    else:
        np.testing.assert_allclose(found, kept, rtol=2e-4, atol=2e-5)
    assert np.ptp([len(row) for row in kept]) in (0, SHOWN)
    assert any(any(row) for row in kept)


def main() -> None:
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    kept |= {key(*case): answer(*case) for case in CASES if key(*case) not in kept}
    lines = [f"{json.dumps(name)}: {json.dumps(values)}" for name, values in sorted(kept.items())]
    KEPT.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
