"""Counts of labels, and how results show themselves."""

import numpy as np

import dkfeat
from dkfeat.engine.dataset.dataset import count_labels
from tests.engine.helpers import featurized, gcws


def test_label_counts__of_classes(tiny_folder, tiny_rows, tmp_path):
    featurized(dkfeat.LibsvmSource(str(tiny_folder / "*.svm"), blocksize=3_000), tmp_path / "features")
    labels, counts = np.unique(tiny_rows[1], return_counts=True)
    expected = dict(zip(labels.tolist(), counts.tolist(), strict=True))
    assert count_labels(dkfeat.open_shards(tmp_path / "features").shards).counts == expected


def test_label_counts__of_lists_of_labels_count_rows_of_each(tmp_path):
    (tmp_path / "rows.svm").write_text("1,3 1:1\n3 2:1\n 3:1\n1,2,3 1:2\n")
    source = dkfeat.LibsvmSource(str(tmp_path / "rows.svm"), multilabel=True)
    dkfeat.featurize(source, tmp_path / "out", gcws(), progress=False)
    data = dkfeat.open_shards(tmp_path / "out")
    assert count_labels(data.shards).counts == {1: 2, 2: 1, 3: 3}


def test_repr__of_what_a_call_gives_is_one_short_line(tiny_folder, tmp_path):
    source, target = dkfeat.LibsvmSource(str(tiny_folder / "*.svm"), blocksize=3_000), tmp_path / "features"
    featurized(source, target)
    data = dkfeat.open_shards(target)
    size = f"{sum(entry.size for entry in data.manifest.shards) / 1024:.1f} KiB"
    assert repr(data.manifest) == f"Manifest(number=1, 400 rows, {data.n_shards} shards, {size})"
    plan = dkfeat.plan(source, "there", gcws())
    assert repr(plan) == f"Plan('there', {len(plan.tasks)} tasks, up to {plan.projected_bytes / 2**20:.1f} MiB each)"
    model = dkfeat.train(data, dkfeat.SGD(epochs=1), progress=False)
    assert repr(model) == "LinearModel('binary', 2 classes, 6,144 features of gcws)"
