"""Places for shards, tried with files that are deleted again."""

from contextlib import nullcontext

import pytest

from dkfeat.doctor.checks import check_store
from dkfeat.store.storage.local import LocalStorage


def check(url, options=None):
    (found,) = check_store(str(url), options)
    return found


def test_folder__that_is_there_is_left_as_it_was(tmp_path):
    (tmp_path / "mine").write_text("")
    found = check(tmp_path)
    assert found.state == "ok", found.found
    assert found.found.startswith(f"{tmp_path}: exclusive create, lock, read, list and delete work, in ")
    assert check(tmp_path / "features").state == "ok"
    assert list(tmp_path.iterdir()) == [tmp_path / "mine"]


@pytest.mark.parametrize(
    ("inner", "match"), [("file/features", "is not a writable folder"), ("missing/features", "does not exist")]
)
def test_folder__that_cannot_be_made_fails(tmp_path, inner, match):
    (tmp_path / "file").write_text("")
    found = check(tmp_path / inner)
    assert (found.state, found.exit_code) == ("fail", 3)
    assert match in found.found


def test_store__in_memory_is_left_as_it_was():
    import fsspec

    assert check("memory://doctor/features").state == "ok"
    assert fsspec.filesystem("memory").find("/doctor") == []


def test_store__without_exclusive_create_is_a_warning():
    found = check("memory://doctor/features", {"exclusive_create": False})
    assert found.state == "warn"
    assert "exclusive create was not tried" in found.found


@pytest.mark.parametrize("url", ["https://host/features", "s3://key:secret@bucket/x", "nothing://x/y", "s3://"])
def test_store__of_a_kind_that_cannot_be_written_fails(url):
    found = check(url)
    assert (found.state, found.exit_code) == ("fail", 2)
    assert "secret" not in found.found


@pytest.mark.parametrize(
    ("method", "broken", "message"),
    [
        ("read", lambda *_: b"other", "was not as it should be"),
        ("list", lambda *_, **__: {}, "was not as it should be"),
        ("size", lambda *_: 1, "was not as it should be"),
        ("acquire", lambda *_, **__: nullcontext(), "two runs can hold the lock"),
        ("create", lambda *_, **__: None, "a file was created twice"),
    ],
)
def test_folder__that_does_not_keep_its_word_fails(monkeypatch, tmp_path, method, broken, message):
    monkeypatch.setattr(LocalStorage, method, broken)
    found = check(tmp_path)
    assert (found.state, found.exit_code) == ("fail", 3)
    assert message in found.found
