from __future__ import annotations

import gzip

import pytest

import dkfeat
from dkfeat.engine.runners.local import Stopped
from dkfeat.engine.scan import ScanTask
from dkfeat.io.files.lines import WINDOW_BYTES


def test_scan_task__stops_within_a_window(tmp_path):
    row = b"1 1:1 # " + b"-" * 2_000 + b"\n"
    (tmp_path / "much.svm.gz").write_bytes(gzip.compress(row * (8 * WINDOW_BYTES // len(row)), 1))
    source = dkfeat.LibsvmSource(str(tmp_path / "much.svm.gz"))
    (split,) = source.splits()
    asked = []
    with pytest.raises(Stopped):
        ScanTask(source)(split, lambda: asked.append(1) or len(asked) == 3)
    assert len(asked) == 3
    asked.clear()
    ScanTask(source)(split, lambda: asked.append(1))
    assert 8 <= len(asked) <= 10
