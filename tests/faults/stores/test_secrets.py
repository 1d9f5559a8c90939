"""Credentials are sent only to the store: the tests search all files and output of a run for a secret."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path

import pytest

import dkfeat
from dkfeat.engine.plan import plan
from dkfeat.engine.tasks.job import Job
from dkfeat.errors import DkfeatError, SourceNotFoundError
from dkfeat.store.storage import open_storage
from tests import programs
from tests.engine.helpers import featurized, gcws
from tests.faults.stores.bucket import KEY, SECRET

BLOCK = 40_000
TOKEN = "planted-session-token"

pytestmark = pytest.mark.fault("X-09")


def assert_clean(*texts: object) -> None:
    for text in texts:
        content = text if isinstance(text, bytes) else str(text).encode()
        for secret in (KEY, SECRET, TOKEN):
            assert secret.encode() not in content, content[:1000]


@pytest.fixture
def secret_options(options):
    return {**options, "token": TOKEN}


@pytest.fixture
def source(tiny_folder, bucket, secret_options):
    bucket.fill(tiny_folder)
    return dkfeat.LibsvmSource(bucket.url("in/*.svm"), blocksize=BLOCK, storage_options=secret_options)


@pytest.mark.cluster
def test_run__leaves_them_nowhere(source, bucket, secret_options, cluster_client, caplog, capfd, proxy, tmp_path):
    caplog.set_level(logging.DEBUG, "dkfeat")
    # at DEBUG, distributed logs messages with all their data
    caplog.set_level(logging.INFO, "distributed")
    proxy.add(503, method="PUT", times=4)
    featurized(source, bucket.url(), client=cluster_client, target_options=secret_options, progress=True)
    data = dkfeat.open_shards(bucket.url(), storage_options=secret_options)
    lazy, y = data.to_dask()
    cluster_client.compute(y).result()
    model = dkfeat.train(data, dkfeat.SGD(epochs=1), progress=False)
    model.save(tmp_path / "model")
    keys = bucket.keys("out/")
    assert_clean(*keys, *(bucket.get(key) for key in keys))
    assert_clean(*(path.read_bytes() for path in (tmp_path / "model").iterdir()))
    assert_clean(caplog.text, *capfd.readouterr())
    assert_clean(*cluster_client.run_on_scheduler(_scheduler_knows))
    folders = cluster_client.run(lambda dask_worker: (dask_worker.local_directory, str(list(dask_worker.state.log))))
    for folder, log in folders.values():
        assert_clean(log, *(path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()))
    assert_clean(*lazy.__dask_keys__(), *lazy.dask.layers, repr(lazy), repr(data))


def _scheduler_knows(dask_scheduler) -> list[str]:
    return [str(list(dask_scheduler.transition_log)), *map(str, dask_scheduler.tasks), str(dask_scheduler.plugins)]


def test_reprs_and_plans__do_not_show_them(source, bucket, secret_options):
    storage = open_storage(bucket.url(), secret_options)
    job = Job(source=source, storage=storage, spec={}, spec_fp="", run_id="")
    made = plan(source, dkfeat.Target(bucket.url(), storage_options=secret_options), gcws())
    X, y = dkfeat.read_libsvm(
        bucket.url("in/*.svm"),
        n_features=300,
        zero_based=False,
        label_dtype="int64",
        storage_options=secret_options,
    )
    assert_clean(repr(source), repr(storage), repr(job), made, made.describe(), source.to_mapping(), storage.url)
    assert_clean(repr(X), *X.dask, *map(repr, X.dask.values()), repr(y))


TROUBLES = ["403", "expired", "500", "drop before", "no bucket", "no endpoint", "no source", "wrong option"]


@pytest.mark.parametrize("trouble", TROUBLES)
def test_errors__do_not_show_them(source, bucket, secret_options, proxy, trouble, caplog):
    caplog.set_level(logging.DEBUG, "dkfeat")
    options, target = {**secret_options, "retry_seconds": 0.1}, bucket.url()
    if trouble == "no bucket":
        target = "s3://there-is-none/out"
    elif trouble == "no endpoint":
        options["endpoint_url"] = "http://127.0.0.1:9"
    elif trouble == "wrong option":
        options |= {"username": SECRET, "key": SECRET}
    elif trouble == "no source":
        source = dkfeat.LibsvmSource(bucket.url("gone/*.svm"), storage_options=options)
    else:
        proxy.add(trouble, method="PUT")
    with pytest.raises(DkfeatError) as fault:
        featurized(source, target, target_options=options)
    assert isinstance(fault.value, SourceNotFoundError) == (trouble == "no source")
    assert_clean(fault.value, repr(fault.value), *traceback.format_exception(fault.value), caplog.text)


@pytest.mark.slow
def test_commands__do_not_show_them(source, bucket, proxy, tmp_path):
    variables = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_SESSION_TOKEN": TOKEN}
    variables |= {"AWS_ENDPOINT_URL": proxy.url, "AWS_DEFAULT_REGION": "us-east-1"}

    def dkfeat_command(*words):
        ended = programs.run(programs.command("--traceback", *words), **variables)
        assert_clean(ended.out, ended.err)
        return ended.status, ended.err

    output = dkfeat_command("featurize", *source.patterns, "--out", bucket.url(), "--n-components", 24)
    assert output[0] == 0, output
    assert dkfeat_command("verify", bucket.url())[0] == 0
    proxy.add(403, method="GET")
    status, errors = dkfeat_command("inspect", bucket.url())
    assert status == 3
    assert "403 AccessDenied" in errors
    keys = bucket.keys("out/")
    assert_clean(*(bucket.get(key) for key in keys))
    assert list(tmp_path.iterdir()) == []
