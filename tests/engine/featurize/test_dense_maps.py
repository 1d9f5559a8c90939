"""Maps of dense features from source to shards and back."""

import numpy as np
import pytest

import dkfeat
from dkfeat.maps import FourierFeatures, GCWSFeatures, MaclaurinFeatures
from tests.conftest import first_quick
from tests.engine.helpers import BLOCK, featurized

PROJECTIONS = ("alternating_circulant", "dense", "circulant", "fastfood", "orthogonal")


@pytest.mark.parametrize(
    "features",
    [
        *first_quick((FourierFeatures(40, projection=projection, random_state=3) for projection in PROJECTIONS), 2),
        MaclaurinFeatures(40, random_state=3),
        pytest.param(MaclaurinFeatures(40, h01=True, normalize="l2", random_state=3), marks=pytest.mark.slow),
        MaclaurinFeatures(40, kernel="maclaurin", coefficients=lambda n: 0.5**n, normalize="l2", random_state=3),
        MaclaurinFeatures(40, inner=GCWSFeatures(p=0.5), random_state=3),
    ],
    ids=[*PROJECTIONS, "cubes", "h01", "function", "composition"],
)
def test_dense_map__shards_hold_the_features(features, tiny_folder, tiny_rows, tmp_path):
    X, _ = tiny_rows
    source = dkfeat.LibsvmSource(str(tiny_folder / "*.svm"), blocksize=BLOCK)
    featurized(source, tmp_path / "shards", map=features)
    data = dkfeat.open_shards(tmp_path / "shards")
    assert data.map.to_spec() == features.fit_width(X.shape[1]).to_spec()
    assert np.array_equal(np.asarray(data.to_dask()[0].compute()), features.transform(X))
