"""Sources at http:// URLs, which may be signed and which servers may describe poorly."""

from __future__ import annotations

import gzip
import json
import logging
import traceback
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dkfeat
from dkfeat.engine.plan import plan
from dkfeat.errors import ConfigError, DkfeatError, SpecConflictError
from dkfeat.store.storage import open_storage
from tests.cli.test_commands import run
from tests.engine.helpers import featurized, gcws
from tests.sources.web_server import web_server

SECRET = "planted-signature"
QUERY = f"X-Amz-Signature={SECRET}/1&token={SECRET}"
USER = f"user:{SECRET}"
ROWS = b"+1 1:1 4:1\n-1 2:1 3:1\n" * 50


def assert_clean(*texts: object) -> None:
    for text in texts:
        content = text if isinstance(text, bytes) else str(text).encode()
        assert SECRET.encode() not in content, content[:1000]


def assert_folder_clean(folder: Path) -> None:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    assert_clean(*paths, *(path.read_bytes() for path in paths))


@pytest.mark.fault("X-09")
def test_signed_url__is_neither_stored_nor_shown(tmp_path, caplog, capfd):
    caplog.set_level(logging.DEBUG, "dkfeat")
    with web_server({"/in/x.svm": ROWS, "/in/y.svm.gz": gzip.compress(ROWS)}, ETag='"1"') as web:
        signed = [web.url(path, QUERY, USER) for path in ("/in/x.svm", "/in/y.svm.gz")]
        made = plan(signed, map=gcws(), scan=True)
        assert_clean(made, made.describe(), made.files, made.tasks, dkfeat.LibsvmSource(signed))
        manifest = featurized(signed, tmp_path / "features", scheduler="synchronous")
        assert [source.name for source in manifest.sources] == ["x.svm", "y.svm.gz"]
        assert "X-Amz-Signature" in str(web.requests)
        dkfeat.verify_inputs(tmp_path / "features", signed)
        dkfeat.run_report(tmp_path / "features", source=signed).save(tmp_path / "report.html")
        model = dkfeat.train(tmp_path / "features", dkfeat.SGD(epochs=1), progress=False)
        model.save(tmp_path / "model")
        dkfeat.predict(model, signed, tmp_path / "predictions", progress=False)
        result = dkfeat.evaluate(model, signed, progress=False)
        assert_clean(result, repr(result))
    assert_folder_clean(tmp_path)
    assert_clean(caplog.text, *capfd.readouterr())


@pytest.mark.fault("X-09")
@pytest.mark.parametrize("suffix", ["svm", "parquet"])
def test_signed_url__with_a_new_signature_is_the_same_source(tmp_path, suffix):
    pq.write_table(pa.table({"label": [1, 2] * 50, "x": range(100)}), tmp_path / "rows.parquet")
    content = ROWS if suffix == "svm" else (tmp_path / "rows.parquet").read_bytes()
    with web_server({f"/in/{name}.{suffix}": content for name in "xy"}, ETag='"1"') as web:
        target = tmp_path / "features"
        plain = featurized(web.url(f"/in/x.{suffix}"), tmp_path / "plain", scheduler="synchronous")
        first = featurized(web.url(f"/in/x.{suffix}", QUERY), target, scheduler="synchronous")
        assert [entry.name for entry in first.shards] == [entry.name for entry in plain.shards]
        assert featurized(web.url(f"/in/x.{suffix}", "token=2", "user:2"), target) == first
        second = [web.url(f"/in/{name}.{suffix}", "token=3/4") for name in "xy"]
        assert featurized(second, target, scheduler="synchronous").rows == 2 * first.rows


@pytest.mark.fault("X-09")
def test_signed_url__two_that_differ_only_in_the_query_are_an_error(tmp_path):
    with web_server({"/get": ROWS}, ETag='"1"') as web:
        urls = [web.url("/get", f"file={name}&token={SECRET}") for name in "ab"]
        with pytest.raises(ConfigError, match=r"/get is named twice .* the query of a URL.* download each") as caught:
            featurized(urls, tmp_path / "features")
        assert_clean(caught.value)


@pytest.mark.fault("X-09")
def test_signed_url__errors_do_not_show_it(tmp_path, caplog):
    with web_server({"/in/x.svm": b"+1 1:x\n"}, ETag='"1"') as web:
        options = {"retry_seconds": 0.1}
        for path in ("/in/x.svm", "/in/none.svm", "/in/none.parquet", "/in/"):
            with pytest.raises(DkfeatError) as caught:
                dkfeat.featurize(
                    web.url(path, QUERY, USER), tmp_path / "features", gcws(), storage_options=options, progress=False
                )
            assert_clean(caught.value, *traceback.format_exception(caught.value))
        for words in (
            ("featurize", web.url("/in/x.svm", QUERY, USER), "--out", tmp_path / "features"),
            ("featurize", web.url("/in/x.svm", QUERY), "--label", "y", "--out", tmp_path / "features"),
            ("featurize", tmp_path / "x.svm", "--out", web.url("/out", QUERY, USER)),
            ("featurize", tmp_path / "x.svm", "--out", tmp_path / "f", "--like", web.url("/out", QUERY, USER)),
            ("plan", web.url("/in/none.svm", QUERY, USER)),
            ("inspect", web.url("/out", QUERY, USER)),
            ("train", web.url("/out", QUERY, USER), "--out", tmp_path / "model"),
            ("predict", web.url("/model", QUERY, USER), tmp_path / "x.svm", "--out", tmp_path / "p"),
            ("status", web.url("/out", QUERY, USER)),
            ("report", web.url("/out", QUERY, USER)),
        ):
            done = run(*words, status=2)
            assert_clean(done.stdout, done.stderr)
    assert_clean(caplog.text)


@pytest.mark.fault("X-09")
@pytest.mark.parametrize("url", ["ftp://user:planted-signature@host/out", "sftp://user:planted-signature@host//out"])
def test_target__with_a_password_in_its_url_is_an_error(url):
    with pytest.raises(ConfigError, match="contains credentials") as caught:
        open_storage(url)
    assert_clean(caught.value)


OTHER = ROWS.replace(b"4:1", b"3:1")
"""Other rows of the same size."""


@pytest.mark.fault("V-05")
def test_server_without_etag_and_time__warns_that_only_the_size_is_known(tmp_path, caplog):
    with web_server({"/x.svm": ROWS}) as web:
        plan(web.url("/x.svm"), map=gcws())
        assert caplog.text.count("1 of 1 source files, such as 'x.svm', are known by name and size alone") == 1
        featurized(web.url("/x.svm"), tmp_path / "features", scheduler="synchronous")
        web.files["/x.svm"] = OTHER
        caplog.clear()
        featurized(web.url("/x.svm"), tmp_path / "features")
        assert "neither ETag nor Last-Modified: only `dkfeat verify --inputs` finds" in caplog.text
        assert dkfeat.verify_inputs(tmp_path / "features", web.url("/x.svm")).problems


@pytest.mark.fault("V-05")
def test_server_without_etag__a_change_is_found_by_the_time(tmp_path, caplog):
    with web_server({"/x.svm": ROWS}, Last_Modified="Wed, 21 Oct 2015 07:28:00 GMT") as web:
        manifest = featurized(web.url("/x.svm"), tmp_path / "features", scheduler="synchronous")
        assert manifest.sources[0].mtime_ns == 1_445_412_480_000_000_000
        web.headers["Last-Modified"] = "Wed, 21 Oct 2015 07:28:01 GMT"
        with pytest.raises(SpecConflictError, match=r"'x\.svm' changed .*mtime_ns 14454124800+ is now 14454124810+"):
            featurized(web.url("/x.svm"), tmp_path / "features")
    assert "known by name and size" not in caplog.text


@pytest.mark.fault("V-05")
def test_server_that_sends_a_time_only_later__has_the_same_files(tmp_path):
    target = tmp_path / "features"
    with web_server({"/x.svm": ROWS, "/y.svm": ROWS}) as web:
        first = featurized(web.url("/x.svm"), target, scheduler="synchronous")
        web.headers["Last-Modified"] = "Wed, 21 Oct 2015 07:28:00 GMT"
        assert featurized(web.url("/x.svm"), target) == first
        assert not dkfeat.verify_inputs(target, web.url("/x.svm")).touched
        (target / "data" / first.shards[0].name).unlink()
        both = featurized([web.url("/x.svm"), web.url("/y.svm")], target, scheduler="synchronous")
        assert both.shards[: len(first.shards)] == first.shards
        assert json.loads((target / "_dkfeat" / "plan-000002.json").read_text())["files"][0]["mtime_ns"]
