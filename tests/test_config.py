from __future__ import annotations

from pathlib import Path

import pytest

from dkfeat.config import JobConfig, load_config
from dkfeat.errors import ConfigError

JOB = """
featurize:
  - source: {urlpath: train.svm.xz, blocksize: 16MiB, zero_based: auto, labels: [-1, 1]}
    map: {name: gcws, n_components: 512, i_bits: 8, seed: 0}
    out: features/train
  - source: {urlpath: [a.svm, b.svm], n_features: 7}
    like: features/train
    out: features/test
train: {shards: features/train, test: features/test, alpha: 1.0e-6, epochs: 3}
run: {scheduler: threads, n_workers: 2}
"""


def _write(folder: Path, text: str) -> Path:
    path = folder / "job.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_load_config__reads_every_section(tmp_path):
    job = load_config(_write(tmp_path, JOB))
    first, second = job.featurize
    assert first.source.labels == (-1.0, 1.0)
    assert first.map.params == {"n_components": 512, "i_bits": 8, "random_state": 0}
    assert second.source.urlpath == ("a.svm", "b.svm")
    assert second.map is None
    assert second.like == "features/train"
    assert job.train.alpha == 1e-6
    assert job.run.n_workers == 2


def test_load_config__empty_file_is_the_default_job(tmp_path):
    assert load_config(_write(tmp_path, "")) == JobConfig()


def test_to_mapping__reads_back_equal(tmp_path):
    job = load_config(_write(tmp_path, JOB))
    assert JobConfig.from_mapping(job.to_mapping()) == job


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("featurise: []", ["featurise: unknown key", "did you mean `featurize`?"]),
        ("train: {shards: a, epoch: 3}", ["train.epoch: unknown key", "did you mean `epochs`?"]),
        ("train: {shards: a, epochs: '3'}", ["train.epochs", "a whole number", "'3' (text)"]),
        ("train: {shards: a, epochs: true}", ["train.epochs", "True (true or false)"]),
        ("train: {shards: a, epochs: 0}", ["train: epochs=0", "at least 1"]),
        ("train: {shards: a, alpha: .nan}", ["train: alpha=nan", "positive and finite"]),
        ("train: {}", ["train: shards must be given"]),
        ("train: [1]", ["train: expected keys and values, got a list"]),
        ("run: {scheduler: threads, n_workers: 0}", ["run: n_workers=0"]),
        ("run: {scheduler: 3}", ["run.scheduler: expected text or nothing, got 3"]),
        ("featurize: {out: a}", ["featurize: expected a list of keys and values"]),
        ("featurize: [{out: a, source: {urlpath: b}}]", ["featurize[0]: neither `map` nor `like`"]),
        ("featurize: [{out: a, like: c, source: {urlpath: b, zero_based: 1}}]", ["source.zero_based", "'auto'"]),
        (
            "featurize: [{out: a, like: c, source: {urlpath: b, labels: [1, x]}}]",
            ["source.labels", "a list of a number"],
        ),
        (
            "featurize: [{out: a, map: {n_components: 3}, source: {urlpath: b}}]",
            ["featurize[0].map: expected a `name`"],
        ),
        ("featurize: [{out: a, map: {name: g, seed: 1, random_state: 1}, source: {urlpath: b}}]", ["same setting"]),
        ("run: {progress: true, progress: false}", ["'progress' is given twice"]),
        ("run: !!python/object/apply:os.getcwd []", ["cannot be read", "could not determine a constructor"]),
        ("run: {", ["cannot be read"]),
        ("- 1", ["settings: expected keys and values, got a list"]),
    ],
)
def test_load_config__refuses_with_the_key_path(tmp_path, text, words):
    path = _write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert str(caught.value).startswith(f"{path}: ")
    for word in words:
        assert word in str(caught.value)


def test_load_config__missing_file_is_a_config_error(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: cannot be read"):
        load_config(tmp_path / "nowhere.yaml")
