from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def unflushed(monkeypatch):
    """No flushes: these tests lose no machine, and would mostly wait for the disk."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
