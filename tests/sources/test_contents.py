"""Reading of input files on disks and behind URLs, and their comparison with what was listed."""

from __future__ import annotations

import pytest

from dkfeat.errors import ConfigError, SourceError, SpecConflictError
from dkfeat.sources.contents import check_unchanged, open_content
from dkfeat.sources.find import find_files
from dkfeat.sources.libsvm.source import LibsvmSource
from tests.sources.web_server import web_server

ROW = b"1 1:1\n"


def test_urls__are_read_by_ranges(memory):
    data = b"".join(b"%d 1:%d\n" % (i, i + 1) for i in range(200))
    memory.pipe("/in/a.svm", data)
    source = LibsvmSource("memory://in/a.svm", n_features=1, zero_based=False, label_dtype="int64", blocksize=100)
    labels = [label for split in source.splits() for piece in source.read(split) for label in piece.block.y]
    assert labels == list(range(200))


def test_urls__protocol_in_capitals(memory):
    memory.pipe("/in/a.svm", ROW)
    (file,) = find_files(["MEMORY://in/*.svm"])
    assert (file.name, file.url) == ("a.svm", "memory:///in/a.svm")


def test_urls__changes_are_seen(memory):
    memory.pipe("/a.svm", ROW)
    (file,) = find_files(["memory://a.svm"])
    check_unchanged(file)
    memory.pipe("/a.svm", b"2 2:2\n")
    with pytest.raises(SpecConflictError, match="has changed"):
        check_unchanged(file)
    memory.rm("/a.svm")
    with pytest.raises(SpecConflictError, match="is gone"):
        check_unchanged(file)


def test_web_servers__other_range_or_length_than_stated():
    with web_server({"/a.svm": ROW * 20}) as web:
        (file,) = find_files([web.url("/a.svm")])
        with open_content(file, len(ROW)) as content:
            assert content.read(len(ROW)) == ROW
        web.shift = len(ROW)
        message = r"bytes 12-119/120 in place of bytes 6-119/120"
        with open_content(file, len(ROW)) as content, pytest.raises(SourceError, match=message):
            content.read(len(ROW))
        web.shift, web.hidden_bytes = 0, 20 * len(ROW)
        with pytest.raises(SourceError, match="the server sent 120 in place of 0"):
            find_files([web.url("/a.svm")])
        web.hidden_bytes = 2 * len(ROW)
        (file,) = find_files([web.url("/a.svm")])
        with (
            open_content(file) as content,
            pytest.raises(SourceError, match="bytes 0-107/120 in place of bytes 0-107/108"),
        ):
            content.read()


def test_web_servers__unknown_storage_option():
    with (
        web_server({"/a.svm": ROW}) as web,
        pytest.raises(ConfigError, match=r"a storage option is not known: .*'endpoint_name'"),
    ):
        find_files([web.url("/a.svm")], {"endpoint_name": "x"})
