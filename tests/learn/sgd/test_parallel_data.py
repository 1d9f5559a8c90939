"""Parts reach the accuracy of one descent on the papers' data sets."""

import lzma

import pytest

import dkfeat
from dkfeat import GCWSFeatures, LibsvmSource

pytestmark = [pytest.mark.data, pytest.mark.slow]


@pytest.mark.parametrize(
    ("name", "blocksize", "n_components"), [("shuttle", "100KiB", 64), ("rcv1", "1MiB", 128), ("sector", "500KiB", 128)]
)
def test_parts__are_within_0_3_points_of_one_descent(name, blocksize, n_components, data_folder, tmp_path):
    for part in ("train", "test"):
        (tmp_path / f"{part}.svm").write_bytes(lzma.decompress((data_folder / name / f"{part}.svm.xz").read_bytes()))
    source = LibsvmSource(str(tmp_path / "train.svm"), blocksize=blocksize)
    train, test = tmp_path / "train", tmp_path / "test"
    gcws = GCWSFeatures(n_components=n_components, i_bits=8, random_state=0)
    dkfeat.featurize(source, train, gcws, progress=False)
    dkfeat.featurize(str(tmp_path / "test.svm"), test, like=train, progress=False)
    one, *parts = (
        dkfeat.train(train, dkfeat.SGD(parts=parts), test=test, progress=False).history[-1]["test_accuracy"]
        for parts in (None, 2, 4)
    )
    assert min(parts) > one - 0.003
