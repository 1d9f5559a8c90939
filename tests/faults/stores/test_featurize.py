"""Featurization from and to an object store, with faults: the result is that of an undisturbed run."""

from __future__ import annotations

import logging
import os
import re

import numpy as np
import pyarrow.dataset
import pyarrow.fs
import pytest

import dkfeat
from dkfeat.engine.tasks.job import Job
from dkfeat.errors import CommitError, ConfigError, ShardError, SourceError, SourceNotFoundError, SpecConflictError
from dkfeat.learn.predict import predict_file
from dkfeat.sources import contents as files
from tests import programs
from tests.engine.helpers import featurized, gcws
from tests.faults.stores.bucket import KEY, SECRET, Bucket
from tests.invariants import dataset_state

BLOCK = 20_000
"""Bytes of a split; the tiny source has about five splits."""
RESOLVED = {"n_features": 300, "zero_based": False, "label_dtype": "int64"}
"""Options that a scan of the tiny source would find."""


@pytest.fixture(scope="module")
def pattern(tiny_folder):
    return str(tiny_folder / "*.svm")


@pytest.fixture(scope="module")
def golden(pattern, tmp_path_factory):
    """State of the data set of the same source in a local folder."""
    folder = tmp_path_factory.mktemp("golden") / "features"
    featurized(dkfeat.LibsvmSource(pattern, blocksize=BLOCK), folder)
    return dataset_state(folder)


@pytest.fixture(scope="module")
def golden_remote(tiny_folder, store_address):
    """State of the data set of the same source in a bucket, where ETags are the identities of its files."""
    calm = Bucket(store_address, "calm")
    calm.fill(tiny_folder)
    options = {"key": KEY, "secret": SECRET, "endpoint_url": f"http://{store_address}"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        featurized(remote(calm, options, **RESOLVED), calm.url(), target_options=options, scheduler="synchronous")
    return calm.state()


def run(pattern, bucket, options, **more):
    source = dkfeat.LibsvmSource(pattern, blocksize=BLOCK)
    return featurized(source, bucket.url(), target_options=options, **{"scheduler": "threads", "n_workers": 2, **more})


def remote(bucket, options, name="*.svm", **more):
    return dkfeat.LibsvmSource(bucket.url(f"in/{name}"), **{"blocksize": BLOCK, "storage_options": options, **more})


def test_target__gets_the_same_bytes_as_a_folder_does(pattern, golden, bucket, options, proxy):
    manifest = run(pattern, bucket, options)
    assert bucket.state() == golden
    bucket.assert_whole(committed=True)

    assert [method for method, path, _ in proxy.requests if "/data/part-" in path] == ["PUT"] * len(manifest.shards)
    assert not any("uploadId" in path or "uploads" in path for _, path, _ in proxy.requests)
    before = len(bucket.keys())
    assert run(pattern, bucket, options) == manifest  # nothing to do
    assert len(bucket.keys()) == before


@pytest.mark.slow
def test_shards__are_read_back_by_us_and_others_trained_on_and_verified(pattern, tiny_rows, bucket, options, tmp_path):
    run(pattern, bucket, options)
    data = dkfeat.open_shards(bucket.url(), storage_options=options)
    X, y = data.to_scipy()
    np.testing.assert_array_equal(y, tiny_rows[1])
    assert (gcws().fit(tiny_rows[0]).transform(tiny_rows[0]) != X).nnz == 0
    lazy, _ = data.to_dask()
    assert (lazy.compute(scheduler="threads") != X).nnz == 0
    assert data.verify().problems == []
    host = options["endpoint_url"].removeprefix("http://")
    system = pyarrow.fs.S3FileSystem(
        access_key=KEY, secret_key=SECRET, endpoint_override=host, scheme="http", region="us-east-1"
    )
    table = pyarrow.dataset.dataset(f"{bucket.name}/out/data", format="parquet", filesystem=system).to_table()
    np.testing.assert_array_equal(table["label"].to_numpy(), tiny_rows[1])
    model = dkfeat.train(bucket.url(), dkfeat.SGD(epochs=1), storage_options=options, progress=False)
    model.save(tmp_path / "model")
    bucket.put("new.svm", b"1 1:0.5\n-1 2:1\n")
    asked = predict_file(model, bucket.url("new.svm"), storage_options=options)
    assert asked.n_rows == 2
    like = dkfeat.featurize(
        bucket.url("new.svm"),
        dkfeat.Target(bucket.url("new"), storage_options=options),
        like=bucket.url(),
        storage_options=options,
        progress=False,
    )
    assert (like.rows, like.n_features) == (2, 300)
    (tmp_path / "new.svm").write_text("1 1:0.5\n")
    local = dkfeat.featurize(
        tmp_path / "new.svm",
        dkfeat.Target(tmp_path / "local", storage_options=options),
        like=bucket.url(),
        progress=False,
    )
    assert local.rows == 1


@pytest.mark.cluster
def test_source_and_target__on_worker_processes(tiny_folder, bucket, options, tiny_rows, golden_remote, cluster_client):
    bucket.fill(tiny_folder)
    manifest = featurized(remote(bucket, options), bucket.url(), client=cluster_client, target_options=options)
    assert manifest.rows == len(tiny_rows[1])
    assert all(source.etag and source.mtime_ns is None for source in manifest.sources)
    assert bucket.state() == golden_remote
    bucket.assert_whole(committed=True)


@pytest.mark.fault("S-08")
@pytest.mark.parametrize(
    "action",
    [
        "503",
        *(
            pytest.param(action, marks=pytest.mark.slow)
            for action in ("500", "429", "drop before", "drop after", "cut body")
        ),
    ],
)
def test_run__first_two_answers_of_each_kind_fail__is_identical(
    tiny_folder, bucket, options, proxy, action, caplog, golden_remote
):
    bucket.fill(tiny_folder)
    caplog.set_level(logging.WARNING, "dkfeat")
    faults = [proxy.add(action, method=method, times=2) for method in ("GET", "HEAD", "PUT", "DELETE")]
    if action == "cut body":
        faults = faults[:1]
    source = remote(bucket, options, **RESOLVED)
    featurized(source, bucket.url(), target_options=options, scheduler="synchronous")
    assert [fault.seen for fault in faults] == [2] * len(faults)
    assert re.search(r"after [12] retries", caplog.text)
    assert bucket.state() == golden_remote
    bucket.assert_whole(committed=True)


@pytest.mark.fault("S-08")
@pytest.mark.parametrize("action", ["half", "whole"])
def test_source__answers_of_another_length_than_asked_for__never_are_its_rows(
    tiny_folder, bucket, options, proxy, action, golden_remote, tmp_path
):
    bucket.fill(tiny_folder)
    some = proxy.add(action, method="GET", key=r"\.svm\?", times=5)
    featurized(remote(bucket, options, **RESOLVED), tmp_path / "out", scheduler="synchronous")
    assert some.seen == 5
    assert dataset_state(tmp_path / "out") == golden_remote
    proxy.add(action, method="GET", key=r"\.svm\?")
    source = remote(bucket, {**options, "retry_seconds": 0.1}, **RESOLVED)
    with pytest.raises(SourceError, match=r"\.svm cannot be read: the store sent \d+ bytes for \d+ from byte") as fault:
        featurized(source, tmp_path / "other", scheduler="synchronous")
    assert fault.value.exit_code == 3


@pytest.mark.fault("S-21")
@pytest.mark.parametrize(
    ("action", "message"),
    [
        ("short", "the server sent bytes 0-29/60 in place of bytes 0-29/30"),
        ("empty", "the server sent 60 in place of 0"),
        ("unsized", r"the store does not send the size \(Content-Length\)"),
    ],
)
def test_source__answer_to_head_states_another_size_or_none__is_an_error(bucket, options, proxy, action, message):
    bucket.put("in/a.svm", b"1 1:1\n" * 10)
    proxy.add(action, method="HEAD")
    source = remote(bucket, options, "a.svm", **RESOLVED)
    with pytest.raises(SourceError, match=message):
        [*source.read(source.splits()[0])]


@pytest.mark.slow
@pytest.mark.fault("S-09")
def test_run__503_for_ever_on_one_shard__ends_and_resumes_identical(pattern, golden, bucket, options, proxy):
    proxy.add(503, method="PUT", key="part-000003")
    with pytest.raises(
        ShardError, match=r"part-000003.*cannot be written: 503 SlowDown.*\d+ attempts, retry limit 1 s"
    ) as fault:
        run(pattern, bucket, {**options, "retry_seconds": 1})
    assert fault.value.exit_code == 3
    assert not [key for key in bucket.keys("out/data/") if "part-000003" in key]
    bucket.assert_whole(committed=False)
    proxy.clear()
    made = bucket.keys("out/data/")
    run(pattern, bucket, options)
    assert bucket.state() == golden
    assert not any(proxy.count("PUT", key) for key in made)


@pytest.mark.fault("S-10")
@pytest.mark.parametrize(
    ("trouble", "message"),
    [("403", "403 AccessDenied"), ("expired", "400 ExpiredToken"), ("no bucket", "404 NoSuchBucket")],
)
def test_run__store_refuses__is_told_before_any_work(pattern, bucket, options, proxy, trouble, message, monkeypatch):
    monkeypatch.setattr(Job, "__call__", None)
    scanned = []
    if trouble != "no bucket":
        proxy.add(trouble, method="PUT")
    target = bucket.url() if trouble != "no bucket" else "s3://there-is-none/out"
    with pytest.raises(CommitError, match=f"cannot create files here: {message}.*credentials are valid") as fault:
        dkfeat.featurize(pattern, dkfeat.Target(target, storage_options=options), gcws(), progress=scanned.append)
    assert fault.value.exit_code == 3
    assert scanned == []
    assert proxy.count("PUT") == 1
    assert bucket.keys() == []


@pytest.mark.fault("S-10")
@pytest.mark.parametrize("action", ["403", "expired"])
def test_source__store_refuses__is_told_at_once(tiny_folder, bucket, options, proxy, action, tmp_path):
    bucket.fill(tiny_folder)
    proxy.add(action)
    with pytest.raises(SourceError, match="cannot be read: 40") as fault:
        featurized(remote(bucket, options), tmp_path / "out")
    assert fault.value.exit_code == 3
    assert len(proxy.requests) <= 2
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.fault("S-12")
def test_put__answered_by_an_error_under_200__is_no_success(pattern, golden, bucket, options, proxy):
    proxy.add("error in 200", method="PUT", key="part-000002")
    with pytest.raises(ShardError, match=r"part-000002.*(InternalError|found None)"):
        run(pattern, bucket, {**options, "retry_seconds": 0.2})
    bucket.assert_whole(committed=False)
    proxy.clear()
    proxy.add("error in 200", method="PUT", key="part-000002", times=1)
    run(pattern, bucket, options)
    assert bucket.state() == golden


@pytest.mark.slow
@pytest.mark.fault("S-13")
def test_run__map_fails_half_way__leaves_no_part_of_a_shard(pattern, golden, bucket, options, monkeypatch):
    encode, calls = dkfeat.GCWSFeatures.encode, []

    def failing(self, X):
        calls.append(X.shape)
        if len(calls) == 3:
            encode(self, X[: X.shape[0] // 2])
            raise RuntimeError("half-way")
        return encode(self, X)

    monkeypatch.setattr(dkfeat.GCWSFeatures, "encode", failing)
    with pytest.raises(RuntimeError, match="half-way"):
        run(pattern, bucket, options, scheduler="synchronous", n_workers=None)
    bucket.assert_whole(committed=False)
    assert len(bucket.keys("out/data/")) == 2
    run(pattern, bucket, options)
    assert bucket.state() == golden


@pytest.mark.slow
@pytest.mark.fault("P-05", "S-21")
@pytest.mark.parametrize(("action", "times"), [("503", 5), ("slow", 1), ("silent", 1)])
def test_sigterm__ends_threads_that_ask_a_failing_store_again(pattern, bucket, options, proxy, action, times):
    run(pattern, bucket, options)
    fault = proxy.add(action, method="GET", key="part-")
    variables = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_ENDPOINT_URL": proxy.url}
    with programs.start(programs.command("verify", bucket.url()), **variables) as process:
        programs.wait_until(lambda: fault.seen > times, process)
        process.terminate()
        assert process.wait(40) == 143  # the store is asked again for 60 seconds, and a slow one answers for ever


def changing(monkeypatch, bucket, key, data):
    """Let another client write a source file after its first range has been read."""
    read, done = files.RemoteFile.readinto, []

    def readinto(self, view):
        n = read(self, view[: min(len(view), 1000)])
        if key in self._file.url and not done:
            done.append(bucket.put(key, data))
        return n

    monkeypatch.setattr(files.RemoteFile, "readinto", readinto)
    monkeypatch.setattr("dkfeat.sources.contents.READ_AHEAD_BYTES", 1000)


@pytest.mark.slow
def test_source__changed_while_it_is_read__is_a_conflict(tiny_folder, bucket, options, monkeypatch, tmp_path):
    bucket.fill(tiny_folder)
    other = (tiny_folder / "b.svm").read_bytes().replace(b"1", b"2")  # of the same size
    source = remote(bucket, options, **RESOLVED)
    changing(monkeypatch, bucket, "in/b.svm", other)
    with pytest.raises(SpecConflictError, match=r"in/b.svm has changed") as fault:
        featurized(source, tmp_path / "out", scheduler="synchronous")
    assert fault.value.exit_code == 4


def test_source__many_files__are_looked_at_with_few_bytes(bucket, options, proxy):
    for number in range(30):
        bucket.put(f"in/{number:02}.svm", b"1 1:1\n" * 1000)
    found = remote(bucket, options).files()
    assert [file.name for file in found] == [f"{number:02}.svm" for number in range(30)]
    assert {status for method, path, status in proxy.requests if method == "GET" and path.endswith(".svm?")} == {206}
    assert len(proxy.requests) < 40


NAMES = [
    "über 数据.svm",
    "a b.svm",
    "a#b.svm",
    "a%20b.svm",
    "a+b.svm",
    "a?b.svm",
    "-a.svm",
    "a&b=c.svm",
    "x" * 251 + ".svm",
]


@pytest.mark.slow
@pytest.mark.fault("I-37")
def test_names__of_any_kind__are_kept_as_keys(bucket, options):
    for number, name in enumerate(NAMES):
        bucket.put(f"in/{name}", b"%d 1:1 2:%d\n" % (number, number + 1))
    single = [remote(bucket, options, name).files()[0].name for name in NAMES]
    assert single == NAMES
    source = dkfeat.LibsvmSource([bucket.url(f"in/{name}") for name in NAMES], storage_options=options)
    manifest = featurized(source, bucket.url("out ü+#"), target_options=options)
    by_name = sorted(NAMES, key=os.fsencode)
    assert [item.name for item in manifest.sources] == by_name
    assert any(key.startswith("out ü+#/data/") for key in bucket.keys("out ü"))
    data = dkfeat.open_shards(bucket.url("out ü+#"), storage_options=options)
    assert data.labels().tolist() == [NAMES.index(name) for name in by_name]
    assert [file.name for file in remote(bucket, options, "*").files()] == by_name


@pytest.mark.fault("C-10")
@pytest.mark.parametrize("given", ["out/in/*.svm", "out/x.svm", "**/*.svm"])
def test_target__that_holds_the_source__is_refused(bucket, options, given):
    bucket.put("out/in/a.svm", b"1 1:1\n")
    bucket.put("out/x.svm", b"1 1:1\n")
    source = dkfeat.LibsvmSource(bucket.url(given), storage_options=options)
    with pytest.raises(ConfigError, match="target s3://"):
        featurized(source, bucket.url(), target_options=options)
    assert bucket.keys() == ["out/in/a.svm", "out/x.svm"]


@pytest.mark.fault("C-10")
@pytest.mark.parametrize("target", ["in/a.svm", "in/a.svm/", "in/a.svm/out"])
def test_target__that_would_hide_a_source__is_refused(bucket, options, target):
    bucket.put("in/a.svm", b"1 1:1\n")
    bucket.put("in/b.svm", b"1 1:1\n")
    with pytest.raises(ConfigError, match=r"source a\.svm is also the name, or a parent, of the target s3://"):
        featurized(remote(bucket, options), bucket.url(target), target_options=options)
    assert bucket.keys() == ["in/a.svm", "in/b.svm"]


@pytest.mark.fault("I-37")
def test_folder_markers__are_no_files(bucket, options):
    for key in ("in/", "in/sub/"):
        bucket.put(key, b"")
    bucket.put("in/a.svm", b"1 1:1\n")
    bucket.put("in/sub/b.svm", b"-1 1:2\n")
    source = remote(bucket, options, "**")
    assert [file.name for file in source.files()] == ["a.svm", "sub/b.svm"]
    assert featurized(source, bucket.url(), target_options=options).rows == 2


def test_shard__damaged_on_the_store__is_found_and_made_again(pattern, golden, bucket, options, caplog):
    run(pattern, bucket, options)
    key = bucket.keys("out/data/")[3]
    whole = bucket.get(key)
    bucket.put(key, whole[:-1])
    with pytest.raises(ShardError, match="damaged"):
        dkfeat.open_shards(bucket.url(), storage_options=options).to_scipy()
    run(pattern, bucket, options)
    assert bucket.get(key) == whole
    assert bucket.state() == golden
    assert len(bucket.keys("out/_dkfeat/set-aside/")) == 1
    assert "set aside" in caplog.text


def test_second_batch__lists_each_shard_once(bucket, options, proxy):
    source = remote(bucket, options, n_features=2, zero_based=False, label_dtype="int64")
    for name, rows in {"a": 1, "b": 3}.items():
        bucket.put(f"in/{name}.svm", b"1 1:1\n" * (rows - rows // 2))
        proxy.requests.clear()
        assert featurized(source, bucket.url(), target_options=options, scheduler="synchronous").rows == rows
    lists = [path for _, path, _ in proxy.requests if "list-type=2" in path and "prefix=out%2Fdata%2F&" in path]
    assert [re.search("start-after=(.*?)(&|$)", path)[1] for path in lists] == [
        "out%2Fdata%2F",
        "out%2Fdata%2Fpart-000001",
    ]


def test_other_store__that_creates_exclusively__works_too(pattern, golden):
    import fsspec

    memory = fsspec.filesystem("memory")
    try:
        manifest = featurized(
            dkfeat.LibsvmSource(pattern, blocksize=BLOCK), "memory://box/out", scheduler="synchronous"
        )
        assert {entry.name: entry.sha256 for entry in manifest.shards} == golden[0]
        assert dkfeat.open_shards("memory://box/out").verify().problems == []
    finally:
        memory.rm("/box", recursive=True)


@pytest.mark.fault("I-36")
@pytest.mark.parametrize("name", ["day.svm", "day-*.svm", "**/*.svm"])
def test_source__of_a_missing_bucket__is_told_from_an_empty_one(bucket, options, name):
    with pytest.raises(SourceNotFoundError, match=r"no file matches .*: there is no bucket there-is-none"):
        dkfeat.LibsvmSource(f"s3://there-is-none/{name}", storage_options=options).files()
    with pytest.raises(SourceNotFoundError, match=r"no file matches \S+$"):
        dkfeat.LibsvmSource(bucket.url(name), storage_options=options).files()


@pytest.mark.slow
def test_landmarks__in_a_bucket(tiny_folder, tiny_rows, bucket, options, tmp_path):
    source = dkfeat.LibsvmSource(str(tiny_folder / "*.svm"), blocksize=4_000)
    fitted = dkfeat.NystroemFeatures(20, random_state=3)
    featurized(source, bucket.url(), map=fitted, target_options=options)
    data = dkfeat.open_shards(bucket.url(), storage_options=options)
    assert data.map.fingerprint() == fitted.fit(tiny_rows[0]).fingerprint()
    assert data.verify().problems == []
    featurized(source, tmp_path / "out", map=None, like=bucket.url(), target_options=options)
    local = dkfeat.open_shards(tmp_path / "out")
    assert np.array_equal(local.to_scipy()[0], data.to_scipy()[0])
    keys = bucket.keys()
    (key,) = [key for key in keys if "landmarks-" in key]
    data.shards.storage.remove(key.removeprefix("out/"))
    with pytest.raises(ShardError, match="is missing: it holds the landmarks"):
        _ = dkfeat.open_shards(bucket.url(), storage_options=options).map


@pytest.mark.fault("V-05")
def test_keep__a_renamed_object_is_known_by_its_tag(bucket, options):
    rows = b"+1 1:1 4:1\n" * 40 + b"-1 2:1\n" * 300
    bucket.put("in/a.svm", rows)
    source = dkfeat.LibsvmSource(bucket.url("in/*.svm"), blocksize=1024, storage_options=options)
    kept = {"target_options": options, "on_changed_source": "keep", "scheduler": "synchronous"}
    first = featurized(source, bucket.url(), **kept)
    bucket.put("in/b.svm", rows)
    bucket.delete("in/a.svm")
    with pytest.raises(
        SpecConflictError, match=r"'b\.svm' has the size and tag of 'a\.svm', which is committed and is gone"
    ):
        featurized(source, bucket.url(), **kept)
    bucket.put("in/b.svm", rows.replace(b"4:1", b"3:1"))
    assert featurized(source, bucket.url(), **kept).rows == 2 * first.rows
