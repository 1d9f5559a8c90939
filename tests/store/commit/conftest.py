from __future__ import annotations

import os

import pytest

from tests.store.tiny_job import TinyJob, write_sources


@pytest.fixture(autouse=True)
def unflushed(monkeypatch):
    """No flushes: these tests lose no machine, and would mostly wait for the disk."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def job(tmp_path):
    return TinyJob(write_sources(tmp_path / "in"), tmp_path / "out")
