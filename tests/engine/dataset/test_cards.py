"""Cards of plans, manifests, data sets and models in notebooks."""

import re
import shutil

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file

import dkfeat
from dkfeat.engine.dataset.dataset import count_labels
from tests.engine.helpers import featurized, gcws


@pytest.fixture(scope="module")
def source(tiny_folder):
    return dkfeat.LibsvmSource(str(tiny_folder / "*.svm"), blocksize=3_000)


@pytest.fixture(scope="module")
def target(source, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cards") / "features"
    featurized(source, folder)
    return folder


def card_text(shown):
    html = shown._repr_html_()
    assert "<script" not in html
    return re.sub(r"\s+", " ", re.sub(r"<style>.*?</style>|<title>.*?</title>|<[^>]+>", " ", html, flags=re.DOTALL))


def test_plan_card__tells_what_will_be_done(source, target):
    plan = dkfeat.plan(source, target.parent / "other", gcws(), scan=dkfeat.scan(source))
    text = card_text(plan)
    assert "Plan nothing is run or written yet target " in text
    assert f"tasks {len(plan.tasks):,}, up to " in text
    assert "rows 400 " in text
    assert "rows known after a scan" in card_text(dkfeat.plan(source, map=gcws()))


def test_dataset_card__counts_rows_and_shards(target, tiny_rows):
    data = dkfeat.open_shards(target)
    labels, counts = np.unique(tiny_rows[1], return_counts=True)
    expected = dict(zip(labels.tolist(), counts.tolist(), strict=True))
    assert count_labels(data.shards).counts == expected
    text = card_text(data)
    assert f"rows 400 shards {data.n_shards} size " in text
    assert "gcws: n_components=24" in text
    assert f"{data.manifest.n_features:,} columns → 6,144, 24 bytes a row as codes" in text


def test_dataset_card__of_many_labels_tells_their_range(tmp_path):
    path = tmp_path / "rows.svm"
    dump_svmlight_file(np.ones((40, 1)), np.arange(40) + 0.5, str(path), zero_based=False)
    dkfeat.featurize(path, tmp_path / "out", gcws(), progress=False)
    assert "labels 40 values from 0.5 to 39.5" in card_text(dkfeat.open_shards(tmp_path / "out"))


def test_label_counts__of_lists_of_labels_count_rows_of_each(tmp_path):
    (tmp_path / "rows.svm").write_text("1,3 1:1\n3 2:1\n 3:1\n1,2,3 1:2\n")
    source = dkfeat.LibsvmSource(str(tmp_path / "rows.svm"), multilabel=True)
    dkfeat.featurize(source, tmp_path / "out", gcws(), progress=False)
    data = dkfeat.open_shards(tmp_path / "out")
    assert count_labels(data.shards).counts == {1: 2, 2: 1, 3: 3}


def test_dataset_card__of_predictions_names_their_columns(target, tmp_path):
    model = dkfeat.train(dkfeat.open_shards(target), dkfeat.SGD(epochs=1), progress=False)
    dkfeat.predict(model, target, tmp_path / "predicted", progress=False)
    text = card_text(dkfeat.open_shards(tmp_path / "predicted"))
    assert set(re.search(r"holds predictions: (.*?) map", text)[1].split(", ")) >= {"label", "prediction", "score"}


def test_dataset_card__reads_nothing(source, tmp_path):
    featurized(source, tmp_path / "features")
    data = dkfeat.open_shards(tmp_path / "features")
    shutil.rmtree(tmp_path / "features")
    assert "labels -1, 1" in card_text(data)


def test_manifest_card__counts_rows_and_names_the_spec(target):
    manifest = dkfeat.open_shards(target).manifest
    text = card_text(manifest)
    assert "Manifest number 1 rows 400 " in text
    assert f"spec {manifest.spec_fp[:12]} " in text


def test_dataset_card__escapes_names_of_files(tmp_path):
    folder = tmp_path / "<b>x"
    folder.mkdir()
    dump_svmlight_file(np.eye(3), [0.5, 1.5, 2.5], str(folder / "<i>.svm"), zero_based=False)
    dkfeat.featurize(folder / "<i>.svm", folder / "out", gcws(), progress=False)
    data = dkfeat.open_shards(folder / "out")
    for shown in (data, data.manifest):
        html = shown._repr_html_()
        assert "<b>x" not in html
        assert "<i>" not in html
    assert "labels 0.5, 1.5, 2.5" in card_text(data)


def test_model_card__tells_task_and_accuracy(target):
    data = dkfeat.open_shards(target)
    model = dkfeat.train(data, dkfeat.SGD(epochs=3), test=data, progress=False)
    text = card_text(model)
    assert "LinearModel task binary classes -1, 1 map gcws: n_components=24" in text
    assert "test accuracy " in text
    assert "epochs 3 " in text


def test_repr__of_what_a_call_gives_is_one_short_line(source, target):
    data = dkfeat.open_shards(target)
    size = f"{sum(entry.size for entry in data.manifest.shards) / 1024:.1f} KiB"
    assert repr(data.manifest) == f"Manifest(number=1, 400 rows, {data.n_shards} shards, {size})"
    plan = dkfeat.plan(source, "there", gcws())
    assert repr(plan) == f"Plan('there', {len(plan.tasks)} tasks, up to {plan.projected_bytes / 2**20:.1f} MiB each)"
    model = dkfeat.train(data, dkfeat.SGD(epochs=1), progress=False)
    assert repr(model) == "LinearModel('binary', 2 classes, 6,144 features of gcws)"
