from __future__ import annotations

import dataclasses
import datetime
import inspect
import os
from pathlib import Path

import pytest

import dkfeat
from dkfeat.cli import cli
from dkfeat.cli.commands.run import build_rows, build_source, load_job
from dkfeat.cli.declared import declarations
from dkfeat.cli.rows import OF_RUNS, make_source
from dkfeat.config import (
    EvaluateConfig,
    ExecutionConfig,
    FeaturizeConfig,
    PredictConfig,
    RunConfig,
    SourceConfig,
    TrainConfig,
    load_config,
)
from dkfeat.config.execution import load_cluster
from dkfeat.engine.runners.connect import read_address
from dkfeat.errors import ConfigError
from dkfeat.sources.formats import FORMATS, format_class

JOB = """
featurize:
  - source: {urlpath: train.svm.xz, blocksize: 16MiB, zero_based: auto, labels: [-1, 1]}
    map: {name: gcws, n_components: 512, i_bits: 8, seed: 0}
    out: features/train
  - source: {urlpath: [a.svm, b.svm], n_features: 7}
    like: features/train
    out: features/test
train: {shards: features/train, test: features/test, alpha: 1e-6, epochs: 3}
predict: [{model: model, source: {urlpath: new.svm}, out: predictions, scores: false}]
evaluate: [{model: model, shards: predictions, out: report}]
run: {scheduler: threads, n_workers: 2}
"""


def _write(folder: Path, text: str) -> Path:
    path = folder / "job.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_load_config__reads_every_section(tmp_path):
    job = load_config(_write(tmp_path, JOB))
    first, second = job.featurize
    assert build_source(first.source).labels == (-1, 1)
    assert first.map.params == {"n_components": 512, "i_bits": 8, "random_state": 0}
    assert second.source.urlpath == ("a.svm", "b.svm")
    assert second.map is None
    assert second.like == "features/train"
    assert job.train.solver.alpha == 1e-6
    assert job.predict[0].source.urlpath == "new.svm"
    assert job.evaluate[0].shards == "predictions"
    assert job.run.n_workers == 2
    load_job(_write(tmp_path, "train: {shards: s, validation: v}"))  # scored, so not lost
    load_job(_write(tmp_path, "{train: {shards: s}, evaluate: [{model: m, shards: s}]}"), ["evaluate"])


@pytest.mark.fault("I-38")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("featurise: []", ["featurise: unknown key", "did you mean 'featurize'?"]),
        ("train: {shards: a, epoch: 3}", ["train.epoch: unknown key", "did you mean 'epochs'?"]),
        ("quux: []", ["quux: unknown key", "the keys are featurize, train, predict, evaluate, run"]),
        ("train: {shards: a, epochs: '3'}", ["train.epochs", "a whole number", "'3' (text)"]),
        ("train: {shards: a, epochs: true}", ["train.epochs", "True (true or false)"]),
        ("train: {shards: a, epochs: 0}", ["train: epochs=0", "at least 1"]),
        ("train: {shards: a, alpha: .nan}", ["train: alpha=nan", "finite number above 0"]),
        ("train: {}", ["train: shards must be given"]),
        ("predict: [{model: a, out: b}]", ["predict[0]: neither of `source` and `shards` given"]),
        ("predict: [{model: a, shards: b}]", ["predict[0]: out must be given"]),
        ("predict: [{model: a, shards: b, out: c.json}]", ["predict[0]: out='c.json', but", "into a folder"]),
        ("evaluate: [{model: a, shards: b, source: {urlpath: c}}]", ["evaluate[0]: both of `source` and `shards`"]),
        ("train: [1]", ["train: expected keys and values, got a list"]),
        ("run: {scheduler: 3}", ["run.scheduler: expected text or nothing, got 3"]),
        ("featurize: {out: a}", ["featurize: expected a list of keys and values"]),
        ("featurize: [{out: a, source: {urlpath: b}}]", ["featurize[0]: neither `map` nor `like`"]),
        (
            "featurize: [{out: a, like: c, source: {urlpath: b, zero_based: 1}}]",
            ["featurize[0].source: zero_based=1", "'auto'"],
        ),
        (
            "featurize: [{out: a, like: c, source: {urlpath: b, labels: [1, x]}}]",
            ["featurize[0].source: labels holds 'x'", "finite numbers"],
        ),
        (
            "featurize: [{out: a, like: c, source: {urlpath: b, n_featurs: 3}}]",
            ["featurize[0].source: b is read as libsvm, which has no option n_featurs; did you mean 'n_features'?"],
        ),
        ("featurize: [{out: a, map: {name: gcsw}, source: {urlpath: b}}]", ["featurize[0].map: there is no map"]),
        (
            "featurize: [{out: a, map: {n_components: 3}, source: {urlpath: b}}]",
            ["featurize[0].map: expected a `name`"],
        ),
        ("featurize: [{out: a, map: {name: g, seed: 1, random_state: 1}, source: {urlpath: b}}]", ["same setting"]),
        ("run: {progress: true, progress: false}", ["'progress' is given twice"]),
        ("run: !!python/object/apply:os.getcwd []", ["cannot be read", "could not determine a constructor"]),
        ("run: {", ["cannot be read"]),
        ("[&a 0, &b [" + "*a, " * 400 + "], &c [" + "*b, " * 400 + "]]", ["aliases repeat"]),
        ("- 1", ["settings: expected keys and values, got a list"]),
    ],
)
def test_load_config__refuses_with_the_key_path(tmp_path, text, words):
    path = _write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_job(path)
    assert str(caught.value).startswith(f"{path}: ")
    for word in words:
        assert word in str(caught.value)


def test_load_config__missing_file_is_a_config_error(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: cannot be read"):
        load_config(tmp_path / "nowhere.yaml")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("featurize: &a [*a]", "recursive"),
        ("run: &a {n_workers: *a}", "recursive"),
        ("[" * 5000 + "]" * 5000, "its values are nested too deeply"),
        ("run: {n_workers: 2026-13-45}", "month must be in"),
        (f"run: {{n_workers: {'9' * 5000}}}", "5000 digits"),
        ("run: {n_workers: !!int ''}", "index out of range"),
        ("run: {n_workers: !!bool perhaps}", "'perhaps'"),
        ("run: {n_workers: !!timestamp soon}", ""),
        *[
            pytest.param(
                f"run: {{n_workers: {number}}}",
                f"{number} is a number with separators",
                marks=pytest.mark.fault("I-43"),
            )
            for number in ("1_0", "010", "0x10", "0b11", "1:30")
        ],
    ],
    ids=range(13),
)
def test_load_config__values_that_yaml_cannot_make(tmp_path, text, words):
    (tmp_path / "job.yaml").write_text(text)
    with pytest.raises(ConfigError, match=rf"job\.yaml: cannot be read as a job file: .*{words}"):
        load_config(tmp_path / "job.yaml")


def test_load_config__merge_keys(tmp_path):
    (tmp_path / "job.yaml").write_text(
        "featurize:\n  - {source: &s {urlpath: a.svm}, map: &m {name: gcws, seed: 0}, out: a}\n"
        "  - {source: {<<: *s, blocksize: 16MiB}, map: {<<: *m, seed: 1}, out: b}\n"
    )
    first, second = load_config(tmp_path / "job.yaml").featurize
    assert (second.source.urlpath, second.source.options) == ("a.svm", {"blocksize": "16MiB"})
    assert [part.map.params for part in (first, second)] == [{"random_state": 0}, {"random_state": 1}]


@pytest.mark.parametrize("read", [load_config, load_cluster, read_address])
def test_files_of_settings__are_regular_and_small(tmp_path, read, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(ConfigError, match="is not a regular file"):
            read(path)
    (tmp_path / "large.yaml").write_text("# " + "a" * 100)
    monkeypatch.setattr("dkfeat.config.settings.MOST_BYTES", 100)
    with pytest.raises(ConfigError, match=r"large\.yaml: cannot be read as .*: it is larger than"):
        read(tmp_path / "large.yaml")


def _defaults_of_fields(cls: type) -> dict[str, object]:
    return {item.name: item.default for item in dataclasses.fields(cls)}


def _defaults_of_call(function) -> dict[str, object]:
    return {name: item.default for name, item in inspect.signature(function).parameters.items()}


def _defaults_of_command(*words: str) -> dict[str, object]:
    """Options of a command line that says no more than it must."""
    name, *arguments = words
    return cli.commands[name].make_context(name, arguments).params


@pytest.mark.parametrize("name", FORMATS)
def test_options_of_sources__are_read_from_their_classes(name):
    """The command line and read_libsvm and read_parquet have no copies of them."""
    declared = {key: one.default for key, one in declarations(FORMATS[name]).items()}
    fields = dataclasses.fields(format_class(name))
    assert declared == {item.name: item.default for item in fields}
    call = _defaults_of_call(getattr(dkfeat, f"read_{name}", dkfeat.read_libsvm))
    assert {
        key: value for key, value in call.items() if key in declared and key != "urlpath"
    }.items() <= declared.items()
    assert set(_defaults_of_command("featurize", "a.svm", "--out", "b")) >= set(declared) - set(OF_RUNS)


def test_parquet_config__makes_the_source_it_describes():
    given = {
        "features": ("a", "b"),
        "features_as": "columns",
        "label": None,
        "weight": "w",
        "id": "key",
        "keep": ("name",),
        "filters": [["day", ">=", datetime.date(2026, 11, 20)]],
        "query_id": "query",
        "n_features": 2,
        "multilabel": True,
    }
    source = build_source(SourceConfig.from_mapping({"urlpath": "rows", "format": "parquet", **given}))
    assert isinstance(source, dkfeat.ParquetSource)
    given["filters"] = ((("day", ">=", "2026-11-20"),),)
    assert {name: getattr(source, name) for name in given} == given


@pytest.mark.parametrize(
    ("path", "option", "message"),
    [
        ("a.parquet", {"max_line_bytes": 99}, "a.parquet is read as parquet, which has no option max_line_bytes"),
        ("a.svm", {"filters": [["day", "about", 3]], "format": "parquet"}, "'about' is not an operator"),
        ("a.svm", {"multilabel": "auto"}, "multilabel='auto'"),
        ("a.svm", {"kind": "libsvm"}, "has no option kind"),
        ("a.svm", {"on_bad_row": "quarantine"}, "on_bad_row: unknown key; .* beside `source`"),
    ],
)
def test_source_config__refuses_options_of_another_format(path, option, message):
    with pytest.raises(ConfigError, match=message):
        build_source(SourceConfig.from_mapping({"urlpath": path, **option}))


@pytest.mark.parametrize(
    ("path", "option", "found"),
    [
        ("a.svm", {"zero_based": True}, True),
        ("a.svm", {"zero_based": False}, False),
        ("a.svm", {"zero_based": "auto", "keep": []}, "auto"),
        ("a.parquet", {"zero_based": "auto"}, True),
        ("a.parquet", {"zero_based": False}, False),
    ],
)
def test_index_base__is_the_one_that_is_given(path, option, found):
    """Also where another format has it as its default, which job files and the command line count as left out."""
    words = ["featurize", path, "--out", "b", "--zero-based", str(option["zero_based"]).lower()]
    assert build_source(SourceConfig.from_mapping({"urlpath": path, **option})).zero_based == found
    assert make_source((path,), _defaults_of_command(*words)).zero_based == found


@pytest.mark.parametrize(
    ("name", "configs", "words"),
    [
        ("featurize", [FeaturizeConfig, RunConfig], ["a.svm", "--out", "b"]),
        ("train", [TrainConfig], ["a"]),
        ("predict", [PredictConfig, RunConfig], ["model", "a.svm"]),
        ("evaluate", [EvaluateConfig, RunConfig], ["model", "a.svm"]),
    ],
)
def test_options__have_the_same_defaults_everywhere(name, configs, words):
    call = _defaults_of_call(getattr(dkfeat, name))
    fields = {key: value for config in configs for key, value in _defaults_of_fields(config).items()}
    shared = call.keys() & fields.keys() - {"model", "map", "encoder", "shards", "solver", "source", "random_state"}
    assert {"storage_options", "progress"} & shared
    assert {key: call[key] for key in shared} == {key: fields[key] for key in shared}
    of_command = _defaults_of_command(name, *words)
    assert shared - {"checkpoint"} <= of_command.keys()
    assert fields.keys() & {item.name for item in dataclasses.fields(ExecutionConfig)} <= of_command.keys()


@pytest.mark.parametrize("rows", [{"shards": "features"}, {"source": {"urlpath": "rows.svm"}}], ids=str)
def test_build_rows__options_of_the_store_reach_a_model_beside_any_rows(rows):
    part = EvaluateConfig.from_mapping({"model": "s3://bucket/model", "storage_options": {"anon": True}, **rows})
    assert build_rows(part)["storage_options"] == {"anon": True}


def test_class_weight__takes_plain_keys_of_yaml(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text("train: {shards: a, class_weight: {0: 3, yes: 2, 1.5: 1}}")
    assert load_config(path).train.solver.class_weight == {"0": 3.0, "yes": 2.0, "1.5": 1.0}
    path.write_text("train: {shards: a, class_weight: u=3}")
    with pytest.raises(ConfigError, match=r"train: class_weight='u=3', but .* such as \{1: 3\} or \{'yes': 3\}"):
        load_config(path)
