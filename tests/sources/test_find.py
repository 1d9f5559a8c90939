"""Which files a source names, in which order, and what is refused before any work begins."""

from __future__ import annotations

import logging
import os
import re
import socket
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dkfeat.errors import ConfigError, ParseError, SourceError, SourceNotFoundError, SpecConflictError
from dkfeat.messages import printable
from dkfeat.sources.contents import check_unchanged
from dkfeat.sources.find import find_files
from dkfeat.sources.libsvm.source import LibsvmSource
from dkfeat.sources.parquet.source import ParquetSource
from tests.sources.web_server import web_server

ROW = b"1 1:1\n"


def make(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(ROW)


def names_of(*urlpaths: str) -> list[str]:
    return [file.name for file in find_files(urlpaths)]


@pytest.mark.fault("D-05")
def test_files__names_are_relative_and_in_byte_order(tmp_path, monkeypatch):
    make(tmp_path, "x/b/2.svm", "x/b/10.svm", "x/B/1.svm", "x/ä.svm", "x/z.svm", "other.svm")
    monkeypatch.chdir(tmp_path / "x")
    for pattern in (str(tmp_path / "x/**/*.svm"), "**/*.svm"):
        assert names_of(pattern) == ["B/1.svm", "b/10.svm", "b/2.svm", "z.svm", "ä.svm"]
    assert names_of(str(tmp_path / "x/b/2.svm"), str(tmp_path / "other.svm")) == ["other.svm", "x/b/2.svm"]


@pytest.mark.fault("D-05")
def test_files__names_stay_when_more_files_come(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make(tmp_path, "d1/x.svm")
    patterns = ("d*/*.svm", str(tmp_path / "**/*.svm"), "./[d]1/../d?/x.svm")
    before = [names_of(pattern) for pattern in patterns]
    assert before == [["d1/x.svm"]] * 3
    make(tmp_path, "d2/x.svm")
    for pattern, names in zip(patterns, before, strict=True):
        assert names_of(pattern)[:1] == names
    assert names_of("d1/*.svm", "d2/*.svm") == ["d1/x.svm", "d2/x.svm"]
    assert names_of("d1/*.svm") == ["x.svm"]


@pytest.mark.fault("V-02", "D-05")
def test_files__names_stay_when_the_root_moves(tmp_path):
    for root in ("a", "b/c"):
        make(tmp_path / root, "d1/x.svm", "d1/e/y.svm")
        assert names_of(str(tmp_path / root / "*/x.svm")) == ["d1/x.svm"]
        assert names_of(*(str(tmp_path / root / part) for part in ("d1/*.svm", "d1/e/y.svm"))) == ["e/y.svm", "x.svm"]


def test_files__relative_paths(tmp_path, monkeypatch):
    make(tmp_path, "x/a.svm", "-b.svm")
    monkeypatch.chdir(tmp_path)
    (file,) = find_files(["x/a.svm"])
    assert (file.name, file.url) == ("a.svm", str(tmp_path / "x/a.svm"))
    assert names_of("*.svm") == names_of("-b.svm") == ["-b.svm"]
    assert names_of("./x/../-b.svm") == ["-b.svm"]


@pytest.mark.fault("I-37")
@pytest.mark.parametrize(
    "name",
    [
        "über 数据.svm",
        "a b",
        "a#b",
        "a%20b",
        "a+b",
        "a?b",
        "-a",
        "a[1]*.svm",
        "*",
        "a\nb",
        "x" * 255,
        "a:b",
        "~",
        "$HOME",
    ],
)
def test_files__any_name_that_exists_is_literal(tmp_path, name):
    make(tmp_path, name, "other.svm", "a1b", "a1.svm")
    (file,) = find_files([str(tmp_path / name)])
    assert file.name == name
    source = LibsvmSource(str(tmp_path / name), n_features=1, zero_based=False, label_dtype="int64")
    assert [piece.block.n_rows for split in source.splits() for piece in source.read(split)] == [1]


@pytest.mark.fault("X-02")
def test_files__links_are_followed_under_their_own_name(tmp_path):
    make(tmp_path, "a.svm")
    (tmp_path / "link.svm").symlink_to("a.svm")
    assert names_of(str(tmp_path / "link.svm")) == ["link.svm"]


@pytest.mark.fault("I-36")
def test_files__nothing_matches(tmp_path):
    for pattern in ("none.svm", "*.svm", "no/such/*"):
        with pytest.raises(SourceNotFoundError, match="no file matches") as caught:
            find_files([str(tmp_path / pattern)])
        assert str(tmp_path / pattern) in str(caught.value)
        assert caught.value.exit_code == 2


@pytest.mark.fault("I-36")
def test_files__folders_are_refused_but_for_patterns(tmp_path):
    make(tmp_path, "x/a.svm", "x/sub/b.svm")
    with pytest.raises(
        SourceNotFoundError, match=r"x is a folder; name files or a pattern such as '.*x/\*\.svm' or '\*\.jsonl', or"
    ):
        find_files([str(tmp_path / "x")])
    assert names_of(str(tmp_path / "x/*")) == ["a.svm"]
    with pytest.raises(SourceNotFoundError, match="no file matches"):
        find_files([str(tmp_path / "*")])


@pytest.mark.fault("I-36")
def test_files__links_to_nowhere_and_pipes(tmp_path):
    (tmp_path / "link.svm").symlink_to("gone.svm")
    with pytest.raises(SourceNotFoundError, match="symbolic link"):
        find_files([str(tmp_path / "link.svm")])
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SourceNotFoundError, match="not a regular file"):
        find_files([str(tmp_path / "pipe")])


@pytest.mark.fault("S-04")
def test_files__unreadable(tmp_path):
    make(tmp_path, "a.svm")
    with pytest.raises(SourceError) as caught:
        find_files([str(tmp_path / "a.svm" / "b.svm")])
    assert isinstance(caught.value, SourceNotFoundError)
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(SourceError, match="cannot be read") as caught:
        find_files([str(tmp_path / "loop")])
    assert caught.value.exit_code == 3


def test_files__named_twice(tmp_path):
    make(tmp_path, "a.svm")
    with pytest.raises(ConfigError, match="named twice"):
        find_files([str(tmp_path / "a.svm"), str(tmp_path / "*.svm")])


@pytest.mark.fault("X-10")
def test_files__control_characters_are_escaped():
    with pytest.raises(SourceNotFoundError) as caught:
        find_files(["no\x1b[31m\nsuch"])
    assert str(caught.value) == r"no file matches no\x1b[31m\nsuch"
    assert printable("a\udcffb") == r"a\udcffb"


def test_files__names_that_are_not_utf8(tmp_path):
    path = os.fsencode(tmp_path) + b"/\xff.svm"
    with open(path, "wb") as file:  # noqa: PTH123  # a name in bytes
        file.write(ROW)
    with pytest.raises(SourceError, match="not UTF-8"):
        find_files([str(tmp_path / "*.svm")])


@pytest.mark.parametrize(
    ("pattern", "found", "left_out"),
    [
        ("*.svm", ["b.svm"], "1 file is left out, such as .a.svm"),
        ("?*.svm", ["b.svm"], "1 file is left out, such as .a.svm"),
        ("**/*.svm", ["b.svm", "in/c.svm"], "2 files are left out, such as .a.svm, in/.d.svm"),
        ("b*", ["b.svm"], ""),
        (".*.svm", [".a.svm"], ""),
        ("b.svm", ["b.svm"], ""),
    ],
)
def test_patterns__name_the_hidden_files_that_they_leave_out(tmp_path, caplog, pattern, found, left_out):
    make(tmp_path, "b.svm", ".a.svm", "in/c.svm", "in/.d.svm", ".git/e.svm")
    (tmp_path / ".folder.svm").mkdir()
    assert names_of(str(tmp_path / pattern)) == found
    assert (left_out in caplog.text) if left_out else not caplog.text


def test_links_to_other_files_of_the_source__are_named(tmp_path, caplog):
    make(tmp_path, "a.svm", "b.svm")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "x.svm").symlink_to(tmp_path / "a.svm")
    os.utime(tmp_path / "b.svm", ns=(0, (tmp_path / "a.svm").stat().st_mtime_ns))
    assert names_of(str(tmp_path / "*.svm")) == ["a.svm", "b.svm"]
    assert names_of(str(tmp_path / "elsewhere/x.svm")) == ["x.svm"]
    assert not caplog.messages
    (tmp_path / "c.svm").symlink_to("a.svm")
    (tmp_path / "d.svm").hardlink_to(tmp_path / "b.svm")
    assert names_of(str(tmp_path / "*.svm")) == ["a.svm", "b.svm", "c.svm", "d.svm"]
    (message,) = caplog.messages
    assert (
        "2 files of the source are links to another file of it, such as c.svm to a.svm, d.svm to b.svm: rows" in message
    )


def test_folders__name_the_files_that_they_leave_out(tmp_path, caplog):
    for name in ("a.parquet", ".b.parquet", "_c.parquet", "d.PARQUET", "in/e.parq", "in/f.parquet", "_log/g.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"label": [1], "x": [1]}), tmp_path / name)
    with caplog.at_level(logging.WARNING):
        assert [file.name for file in ParquetSource(str(tmp_path)).files()] == ["a.parquet", "in/f.parquet"]
    assert [record.message.split("such as ")[1].split(":")[0] for record in caplog.records] == [
        "d.PARQUET, in/e.parq",
        ".b.parquet",
        "_c.parquet, _log/g.parquet",
    ]
    assert [file.name for file in ParquetSource(str(tmp_path / "_log")).files()] == ["g.parquet"]
    (tmp_path / "in" / "f.parquet").unlink()
    for path in tmp_path.glob("*.parquet"):
        path.unlink()
    caplog.clear()
    with pytest.raises(SourceNotFoundError, match="no file matches"):
        ParquetSource(str(tmp_path)).files()
    assert "2 files are left out, such as d.PARQUET" in caplog.text


def test_urls__one_pattern_and_folder(memory):
    for name in ("in/b.svm", "in/a.svm", "in/sub/c.svm"):
        memory.pipe(f"/{name}", ROW)
    assert names_of("memory://in/*.svm") == ["a.svm", "b.svm"]
    assert names_of("memory://*/sub/*.svm") == ["in/sub/c.svm"]
    (file,) = find_files(["memory://in/a.svm"])
    assert (file.name, file.url, file.size) == ("a.svm", "memory:///in/a.svm", 6)
    with pytest.raises(SourceNotFoundError, match="no file matches memory://in/none"):
        find_files(["memory://in/none*"])
    with pytest.raises(SourceNotFoundError, match="is a folder"):
        find_files(["memory://in"])
    with pytest.raises(ConfigError, match="nosuchprotocol://x cannot be opened") as caught:
        find_files(["nosuchprotocol://me:secret@x"])
    assert "secret" not in str(caught.value)


@pytest.mark.fault("X-09")
def test_urls__errors_name_the_url(memory):
    memory.pipe("/in/x/b.svm", ROW + b"1 x\n")
    memory.pipe("/in/a.svm", ROW)
    source = LibsvmSource("memory://in/**/*.svm", n_features=1, zero_based=False, label_dtype="int64")
    with pytest.raises(ParseError, match=r"^memory:///in/x/b\.svm:2:3: "):
        [list(source.read(split)) for split in source.splits()]
    assert printable("https://me:secret@host/b.svm?key=secret:2:3") == "https://host/b.svm"


@pytest.mark.parametrize("url", ["zip://a.svm::{}/b.zip", "zip://a.parquet::{}/b.zip", "tar://*.svm::file://{}/b.tar"])
def test_urls__in_archives_are_an_error_that_names_what_is_supported(tmp_path, url):
    cls = ParquetSource if "parquet" in url else LibsvmSource
    url = url.format(tmp_path)
    with pytest.raises(ConfigError, match=rf"^{re.escape(url)} is not supported: .*extract .*such as simplecache::"):
        cls(url).files()
    make(tmp_path, "a.svm")
    assert names_of(f"simplecache::file://{tmp_path}/a.svm") == ["a.svm"]


def test_urls__file_protocol_and_mixtures(tmp_path, memory):
    make(tmp_path, "a.svm")
    assert names_of(f"file://{tmp_path}/a.svm") == ["a.svm"]
    memory.pipe("/a.svm", ROW)
    with pytest.raises(ConfigError, match="one file system; got local, memory"):
        find_files([str(tmp_path / "a.svm"), "memory://a.svm"])


def test_find_files__server_without_content_length__is_an_error():
    with (
        web_server({"/rows.svm": ROW}, Content_Length=None) as web,
        pytest.raises(SourceError, match=r"rows\.svm: the server does not send its size \(Content-Length\)"),
    ):
        find_files([web.url("/rows.svm")])


@pytest.mark.parametrize(
    ("status", "path", "error", "message"),
    [
        (401, "/rows.svm", SourceError, "401"),
        (403, "/rows.svm?signature=1", SourceError, "403"),
        (403, "/*.svm", SourceError, "403"),
        (404, "/rows.svm", SourceNotFoundError, "no file matches"),
        (404, "/*.svm", SourceNotFoundError, "no file matches"),
        (503, "/rows.svm", SourceError, "503"),
    ],
)
def test_find_files__failure_of_a_web_server__is_not_a_missing_file(status, path, error, message):
    with web_server({}) as web:
        web.missing = status
        with pytest.raises(SourceError, match=message) as caught:
            find_files([web.url(path)], {"retry_seconds": 0.1})
    assert caught.type is error


@pytest.mark.parametrize(("status", "error"), [(403, SourceError), (500, SourceError), (404, SpecConflictError)])
def test_check_unchanged__failure_of_a_web_server__is_not_a_file_that_is_gone(status, error):
    with web_server({"/rows.svm": ROW}) as web:
        options = {"retry_seconds": 0.1}
        (file,) = find_files([web.url("/rows.svm")], options)
        web.files.clear()
        web.missing = status
        with pytest.raises(error, match="gone" if status == 404 else str(status)) as caught:
            check_unchanged(file, options)
    assert caught.type is error


def test_find_files__transient_faults_of_a_web_server__are_retried(caplog):
    with web_server({"/rows.svm": ROW}) as web:
        web.faults = [503] * 4  # fsspec asks several times itself, by HEAD and by GET
        (file,) = find_files([web.url("/rows.svm")])
    assert file.size == len(ROW)
    assert "done after 1 retries" in caplog.text


def test_find_files__web_server_that_cannot_be_reached__is_not_a_missing_file():
    pytest.importorskip("aiohttp", reason="fsspec reads http:// URLs through aiohttp")
    with socket.socket() as nobody:  # its port is taken, and refuses connections
        nobody.bind(("127.0.0.1", 0))
        with pytest.raises(SourceError, match="Connect call failed") as caught:
            find_files([f"http://127.0.0.1:{nobody.getsockname()[1]}/rows.svm"], {"retry_seconds": 0.1})
    assert caught.type is SourceError
