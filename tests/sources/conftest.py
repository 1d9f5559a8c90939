"""A store in memory for tests of input files."""

from __future__ import annotations

import fsspec
import pytest


@pytest.fixture
def memory():
    """The shared in-memory file system, emptied."""
    system = fsspec.filesystem("memory")
    system.store.clear()
    yield system
    system.store.clear()
