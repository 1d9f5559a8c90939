"""Status, clean-up and abort of data sets in an object store, and Parquet sources from one."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dkfeat
from dkfeat.engine.dataset.verify import verify_inputs
from dkfeat.errors import SpecConflictError
from dkfeat.store.commit.maintenance import clean
from dkfeat.store.commit.status import status
from tests.engine.helpers import featurized
from tests.faults.stores.bucket import KEY, SECRET
from tests.store.tiny_job import TinyJob, write_sources


@pytest.fixture
def job(storage, tmp_path):
    return TinyJob(write_sources(tmp_path / "in"), Path("unused"), storage=storage)


def test_clean__removes_strays_and_names_foreign_objects(job, bucket, options):
    job.run()
    stray = f"part-000099-0000-{'0' * 12}.parquet"
    bucket.put(f"out/data/{stray}", b"stray")
    bucket.put("out/data/mine.txt", b"mine")
    bucket.put(f"out/_dkfeat/probe-{'0' * 32}", b"probe")
    done = clean(bucket.url(), storage_options=options)
    assert {Path(name).name for name in done.removed} == {stray, f"probe-{'0' * 32}"}
    assert bucket.keys("out/data/mine") == ["out/data/mine.txt"]
    assert status(bucket.url(), storage_options=options).state == "complete"


@pytest.mark.slow
def test_inputs__on_the_store__are_compared_byte_by_byte(tiny_folder, bucket, options):
    bucket.fill(tiny_folder)
    source = dkfeat.LibsvmSource(bucket.url("in/*.svm"), blocksize=40_000, storage_options=options)
    featurized(source, bucket.url(), target_options=options)
    again = dkfeat.LibsvmSource(bucket.url("in/*.svm"), storage_options=options)
    assert verify_inputs(dkfeat.Target(bucket.url(), storage_options=options), again).problems == ()
    bucket.put("in/a.svm", (tiny_folder / "a.svm").read_bytes().replace(b"1", b"2"))
    assert len(verify_inputs(dkfeat.Target(bucket.url(), storage_options=options), again).problems) >= 1


@pytest.mark.slow
def test_report__on_the_store__reads_logs_and_source(tiny_folder, bucket, options):
    bucket.fill(tiny_folder)
    source = dkfeat.LibsvmSource(bucket.url("in/*.svm"), blocksize=40_000, storage_options=options)
    featurized(source, bucket.url(), target_options=options)
    report = dkfeat.run_report(dkfeat.Target(bucket.url(), storage_options=options))
    assert report.kernel is None  # a URL that only a log names is not opened
    assert bucket.url("in/*.svm") in report.kernel_note
    again = bucket.url("in/*.svm")
    report = dkfeat.run_report(dkfeat.Target(bucket.url(), storage_options=options), again, storage_options=options)
    assert [log.outcome for log in report.logs] == ["committed"]
    assert report.kernel.same, report.kernel_note
    assert report.logs[0].sources == (again,)
    assert not any(secret in report.to_html() for secret in (KEY, SECRET))


@pytest.fixture
def parquet(tiny_rows, bucket):
    X, y = tiny_rows
    offsets = pa.array(X.indptr)
    lists = [pa.ListArray.from_arrays(offsets, pa.array(values)) for values in (X.indices, X.data)]
    table = pa.table({"label": y, "indices": lists[0], "values": lists[1]})
    buffer = io.BytesIO()
    pq.write_table(table, buffer, row_group_size=100)
    bucket.put("in/rows.parquet", buffer.getvalue())
    return buffer.getvalue()


def parquet_source(bucket, options):
    return dkfeat.ParquetSource(
        bucket.url("in/*.parquet"), features=("indices", "values"), n_features=300, storage_options=options
    )


@pytest.mark.slow
def test_parquet__changed_since_it_was_committed__is_a_conflict(parquet, bucket, options):
    featurized(parquet_source(bucket, options), bucket.url(), target_options=options)
    table = pq.read_table(io.BytesIO(parquet)).slice(0, 200)
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    bucket.put("in/rows.parquet", buffer.getvalue())
    with pytest.raises(SpecConflictError, match=r"'rows.parquet' changed since manifest-000001.*: .*etag"):
        featurized(parquet_source(bucket, options), bucket.url(), target_options=options)
