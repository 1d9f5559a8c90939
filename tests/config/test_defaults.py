"""Defaults of Dask's configuration: where they apply, what counts more, and what is refused."""

import json
from pathlib import Path

import dask
import pytest

from dkfeat.config import ExecutionConfig
from dkfeat.engine.runners.defaults import read_defaults
from dkfeat.engine.runners.open import fill_where, open_runner
from dkfeat.errors import ConfigError
from tests.cli.test_commands import run

ROOT = Path(__file__).parents[2]
WHERE = ("scheduler", "scheduler_file", "cluster", "n_workers", "threads_per_worker", "memory_limit")


@pytest.mark.parametrize(
    ("configured", "said", "filled"),
    [
        ({"n-workers": 4, "memory-limit": "1GiB"}, {}, {"n_workers": 4, "memory_limit": "1GiB"}),
        ({"n_workers": 4}, {"n_workers": 2}, {"n_workers": 2}),
        ({"n-workers": 4}, {"memory_limit": "1GiB"}, {"n_workers": 4, "memory_limit": "1GiB"}),
        ({"scheduler": "tcp://a:1", "n-workers": 4}, {}, {"scheduler": "tcp://a:1"}),
        ({"scheduler": "tcp://a:1"}, {"n_workers": 4}, {"n_workers": 4}),
        ({"scheduler": "tcp://a:1"}, {"cluster": "slurm.yaml"}, {"cluster": "slurm.yaml"}),
        ({"cluster": "slurm.yaml", "n-workers": 4}, {}, {"cluster": "slurm.yaml"}),
        ({"n-workers": 4, "memory-limit": "1GiB"}, {"scheduler": "threads"}, {"n_workers": 4}),
        ({"n-workers": 4}, {"scheduler": "threading"}, {"n_workers": 4}),
        ({"n-workers": 4}, {"scheduler": "synchronous"}, {}),
        ({"n-workers": 4, "threads-per-worker": 2}, {"scheduler": "cluster"}, {"threads_per_worker": 2}),
    ],
)
def test_fill_where__what_was_said_counts_more(configured, said, filled):
    with dask.config.set({"dkfeat": configured}):
        found = fill_where(ExecutionConfig(**said))
    if said.get("scheduler") == "cluster":
        filled = filled | {"n_workers": 4}
    assert found == ExecutionConfig(**said | filled)


def test_open_runner__takes_what_is_configured():
    with dask.config.set({"dkfeat.scheduler": "threads", "dkfeat.n-workers": 3}), open_runner() as runner:
        assert runner.n_threads == 3
    with dask.config.set({"dkfeat.scheduler": "nowhere"}), pytest.raises(ConfigError, match="scheduler='nowhere'"):
        open_runner()
    with (
        dask.config.set({"dkfeat.scheduler": "nowhere"}),
        open_runner(ExecutionConfig(scheduler="synchronous")) as runner,
    ):
        assert runner.n_threads == 1


@pytest.mark.parametrize(
    ("configured", "words"),
    [
        ({"n-worker": 4}, "Dask's configuration: dkfeat.n_worker: unknown key; did you mean 'n_workers'?"),
        ({"memory_limt": 4}, "did you mean 'memory_limit'?"),
        ({"zzz": 1}, "the keys are scheduler, scheduler_file, cluster"),
        ({"n-workers": "many"}, "dkfeat.n_workers: expected a whole number or nothing, got 'many' (text)"),
        ({"n-workers": 0}, "dkfeat: n_workers=0, but it must be at least 1"),
        ({"scheduler": "threads", "cluster": "a.yaml"}, "scheduler and cluster are given"),
        ([1], "dkfeat: expected keys and values"),
    ],
)
def test_read_defaults__refuses(configured, words):
    with dask.config.set(dkfeat=configured), pytest.raises(ConfigError) as caught:
        read_defaults()
    assert words in str(caught.value)


@pytest.mark.parametrize("path", sorted((ROOT / "conf").rglob("*.yaml")), ids=lambda path: path.stem)
def test_conf__every_file_is_right(path, tmp_path):
    job = path
    if path.parent.name == "cluster":
        job = tmp_path / "job.yaml"
        job.write_text(f"evaluate: [{{model: m, shards: s}}]\nrun: {{cluster: '{path}'}}")
    told = json.loads(run("run", job, "--dry-run", "--json").stdout)
    assert (told.pop("file"), any(told.values())) == (str(job), True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{evaluate: [{model: m, shards: s}], run: {memory_limit: 100MiB}}", "memory_limit='100MiB', but"),
        ("featurize: [{source: {urlpath: a}, map: {name: gcws, i_bit: 3}, out: b}]", "did you mean 'i_bits'?"),
        ("featurize: [{source: {urlpath: a}, map: {name: gcws, n_components: 0}, out: b}]", "n_components=0"),
        ("featurize: [{source: {urlpath: a}, map: {name: dart}, encoder: {categories: 3}, out: b}]", "categories=3"),
        ("predict: [{model: m, out: b, source: {urlpath: a.svm, weight: w}}]", "libsvm, which has no option weight"),
        ("train: {shards: s}", "train.out: not given, and nothing uses the model; give a folder"),
        ("{train: {shards: s, test: t}, evaluate: [{model: none, shards: s}]}", "out: not given, and none, which"),
    ],
)
def test_dry_run__names_the_file_and_the_mistake(tmp_path, text, words):
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    told = run("run", path, "--dry-run", status=2).stderr
    assert told.count(str(path)) == 1
    assert words in told


def test_dry_run__reads_the_cluster_file(tmp_path):
    (tmp_path / "cluster.yaml").write_text("kind: local\nn_worker: 3")
    text = f"{{evaluate: [{{model: m, shards: s}}], run: {{cluster: '{tmp_path}/cluster.yaml'}}}}"
    (tmp_path / "job.yaml").write_text(text)
    told = run("run", tmp_path / "job.yaml", "--dry-run", status=2).stderr
    assert f"{tmp_path}/cluster.yaml: n_worker: unknown key; did you mean 'n_workers'?" in told


@pytest.mark.parametrize(
    "text",
    [
        "featurize: {source: {urlpath: a, storage_options: {secret: hunter2}}, out: b}",
        "featurize: [{source: {urlpath: a, storage_options: hunter2}, out: b}]",
        "predict: [{model: m, shards: s, out: b, target_options: [hunter2]}]",
    ],
)
def test_dry_run__shows_no_options_of_storages(tmp_path, text):
    (tmp_path / "job.yaml").write_text(text)
    told = run("run", tmp_path / "job.yaml", "--dry-run", status=2).stderr
    assert "hunter2" not in told
    assert ", got " in told


@pytest.mark.slow
def test_train__is_not_cut_into_parts_by_a_default(tmp_path):
    (tmp_path / "rows.svm").write_text("1 1:1\n2 2:1\n" * 20)
    run("featurize", tmp_path / "rows.svm", "--n-components", 8, "--out", tmp_path / "out")
    trained = ("train", tmp_path / "out", "--epochs", 2, "--json", "--out")
    plain = json.loads(run(*trained, tmp_path / "one").stdout)
    with dask.config.set({"dkfeat.n-workers": 2}):
        configured = json.loads(run(*trained, tmp_path / "two").stdout)
    assert configured["training"] == plain["training"]
    assert {path.name for path in (tmp_path / "one").iterdir()} == {path.name for path in (tmp_path / "two").iterdir()}
