from __future__ import annotations

import errno
import json
import os
import pickle
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

from dkfeat.errors import CommitConflictError, CommitError, ConfigError, TargetBusyError
from dkfeat.store.storage import local, open_storage
from dkfeat.store.storage.base import DATA, LOCK, META, TMP, this_process
from dkfeat.store.storage.local import LocalStorage
from tests.store.tiny_job import TinyJob, write_sources

NAME = "data/part-000000-0000-3f9c2a71b0de.parquet"


@pytest.fixture
def disk(tmp_path):
    made = LocalStorage(str(tmp_path / "out"))
    made.prepare()
    return made


@pytest.fixture(params=["disk", "object store"])
def storage(request, tmp_path):
    """A storage of each kind; the object store is one in memory, and tests/faults/stores has those behind S3."""
    made = open_storage(tmp_path / "out" if request.param == "disk" else f"memory://{tmp_path.name}/out")
    made.prepare()
    return made


def left(storage):
    return [path.name for path in (Path(storage.url) / TMP).iterdir()]


@pytest.mark.parametrize("url", ["http://host/x", "https://host/x", "simplecache::s3://bucket/x"])
def test_open__other_protocol__is_refused(url):
    with pytest.raises(ConfigError, match="not supported"):
        open_storage(url)


@pytest.mark.parametrize("url", ["", "file://", "a\0b"])
def test_open__no_folder__is_refused(url):
    with pytest.raises(ConfigError, match="is not the path of a folder"):
        open_storage(url)


def test_open__options_for_a_local_folder__are_refused_without_their_values():
    with pytest.raises(ConfigError, match="key") as fault:
        open_storage("out", {"key": "secret"})
    assert "secret" not in str(fault.value)


def test_open__file_url_is_the_path(tmp_path):
    assert open_storage(f"file://{tmp_path}").url == str(tmp_path)


def test_storage__travels_to_workers(storage):
    storage.create(NAME, b"whole")
    copy = pickle.loads(pickle.dumps(storage))
    assert copy.read(NAME) == b"whole"
    assert repr(copy) == f"{type(storage).__name__}({storage.url!r})"


def test_list__passes_over_what_vanishes_meanwhile(disk, monkeypatch):
    """A probe of a run that works beside a reader is there for a moment."""
    for name in ("a", "b", "c"):
        disk.create(f"data/{name}", b"whole")
    scan = os.scandir

    def late(descriptor):
        entries = [*scan(descriptor)]
        disk.remove("data/b")
        return nullcontext(entries)

    monkeypatch.setattr(local.os, "scandir", late)
    assert disk.list(DATA) == {"a": 5, "c": 5}


def test_create__then_read(storage):
    storage.create(NAME, memoryview(b"whole"))
    assert storage.read(NAME) == bytes(storage.load(NAME, 5)) == b"whole"
    assert storage.size(NAME) == 5
    assert storage.list(DATA) == {Path(NAME).name: 5}
    with storage.open(NAME) as file:
        file.seek(2)
        assert file.read() == b"ole"
    storage.replace(NAME, b"other")
    assert storage.read(NAME) == b"other"
    assert storage.leftovers() == ()


def test_missing__is_told_as_such(storage):
    assert (storage.size(NAME), storage.list(DATA), storage.holder()) == (None, {}, None)
    storage.remove(NAME)
    with pytest.raises(FileNotFoundError):
        storage.read(NAME)


def test_create__existing__is_refused_and_unchanged(storage):
    storage.create(NAME, b"first")
    with pytest.raises(FileExistsError):
        storage.create(NAME, b"second")
    assert storage.read(NAME) == b"first"
    assert storage.leftovers() == ()


def forbid_links(monkeypatch):
    def link(*_, **__):
        raise OSError(errno.EPERM, "hard links are not made here")

    monkeypatch.setattr(os, "link", link)


@pytest.mark.parametrize("links", [True, False])
def test_create__many_at_once__exactly_one_wins(disk, monkeypatch, links):
    if not links:
        forbid_links(monkeypatch)
    barrier = threading.Barrier(8)
    wins = []

    def race(number):
        barrier.wait()
        try:
            disk.create(NAME, b"%d" % number * 10_000)
            wins.append(number)
        except FileExistsError:
            pass

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(race, range(8)))
    if links:  # without them the lock keeps writers apart, not create
        [winner] = wins
        assert disk.read(NAME) == b"%d" % winner * 10_000
    assert len(set(disk.read(NAME))) == 1
    assert left(disk) == []


def test_create__empty_file(storage):
    storage.create(NAME, b"")
    assert storage.read(NAME) == b""


@pytest.mark.fault("S-02")
@pytest.mark.parametrize("fails", ["write", "fsync", "link"])
def test_create__fault__leaves_nothing(disk, monkeypatch, fails):
    def fault(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, fails, fault)
        with pytest.raises(OSError, match="No space"):
            disk.create(NAME, b"whole")
    assert disk.list(DATA) == {}
    assert left(disk) == []


def test_create__folder_is_gone__is_not_made_anew(tmp_path):
    with pytest.raises(FileNotFoundError):
        LocalStorage(str(tmp_path / "gone")).create(NAME, b"x")
    assert not (tmp_path / "gone").exists()


@pytest.mark.fault("X-11")
def test_lock__large_object_in_its_place__is_read_in_part(tmp_path, monkeypatch):
    store = open_storage(f"memory://{tmp_path.name}/out")
    store.create(LOCK, b"[" * (1 << 20))
    cat, sizes = type(store._system).cat_file, []

    def counted(self, path, **part):
        data = cat(self, path, **part)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(type(store._system), "cat_file", counted)
    assert (store.lock_values(), sizes) == ({}, [1 << 16])


@pytest.mark.fault("X-01")
@pytest.mark.parametrize("name", ["../x", "/x", "data/../x", "data//x", "data/", "", "data/\0", "./x"])
def test_names__outside__are_refused(storage, name):
    for call in (storage.read, storage.size, storage.remove, storage.set_aside, lambda name: storage.create(name, b"")):
        with pytest.raises(ValueError, match="not the name of a file"):
            call(name)


@pytest.mark.fault("X-02")
def test_links__to_a_file_outside__are_not_followed(disk, tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    (Path(disk.url) / NAME).symlink_to(secret)
    with pytest.raises(OSError, match="a symbolic link"):
        disk.read(NAME)
    with pytest.raises(FileExistsError):
        disk.create(NAME, b"mine")
    disk.remove(NAME)
    assert secret.read_bytes() == b"secret"


@pytest.mark.fault("X-02")
def test_links__for_a_folder_inside__are_not_followed(disk, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (Path(disk.url) / DATA).rmdir()
    (Path(disk.url) / DATA).symlink_to(elsewhere)
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        disk.create(NAME, b"mine")
    assert list(elsewhere.iterdir()) == []


@pytest.mark.fault("X-02")
def test_links__to_the_root__are_followed(disk, tmp_path):
    (tmp_path / "alias").symlink_to(disk.url)
    alias = LocalStorage(str(tmp_path / "alias"))
    alias.create(NAME, b"x")
    assert disk.read(NAME) == b"x"


def test_open__a_pipe_in_place_of_a_file__does_not_hang(disk):
    os.mkfifo(Path(disk.url) / NAME)
    with pytest.raises(OSError, match="not a regular file"):
        disk.read(NAME)


def test_sweep__takes_temporary_files_only(disk):
    (Path(disk.url) / TMP / f"x.{0:032x}.tmp").write_bytes(b"cut")
    (Path(disk.url) / TMP / "foreign.txt").write_bytes(b"mine")
    disk.sweep()
    assert left(disk) == ["foreign.txt"]


@pytest.mark.fault("X-12")
@pytest.mark.parametrize("mask", [0o077, 0o022])
def test_permissions__follow_the_umask(tmp_path, mask):
    former = os.umask(mask)
    try:
        job = TinyJob(write_sources(tmp_path / "in"), tmp_path / "out")
        job.run()
    finally:
        os.umask(former)
    for path in (tmp_path / "out").rglob("*"):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o777 if path.is_dir() else 0o666) & ~mask, path


def test_probe__killed_half_way__is_swept_away(disk, monkeypatch):
    monkeypatch.setattr(disk, "remove", lambda *_, **__: None)
    disk.probe()
    monkeypatch.undo()
    assert len(disk.list(META)) == 3
    disk.sweep()
    assert list(disk.list(META)) == ["set-aside", "tmp"]


@pytest.mark.fault("S-18")
def test_probe__store_that_overwrites__is_refused(disk, monkeypatch):
    monkeypatch.setattr(
        local, "_link_or_rename", lambda old, new, tmp, to: os.rename(old, new, src_dir_fd=tmp, dst_dir_fd=to)
    )
    with pytest.raises(CommitError, match="created twice"):
        disk.probe()
    assert list(disk.list(META)) == ["set-aside", "tmp"]


@pytest.mark.fault("S-15")
def test_temporary_folder_of_the_system__is_not_used(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", "/nonexistent")
    TinyJob(write_sources(tmp_path / "in"), tmp_path / "out").run()


HOLDER = {"run_id": "a" * 32, "host": "here", "pid": 1, "since": "then"}


@pytest.mark.fault("C-01")
def test_lock__second_taker__learns_who_holds_it(storage):
    lock = storage.acquire(HOLDER)
    with pytest.raises(CommitConflictError, match=rf"run a{{32}} \(host \S+, pid {os.getpid()}, since then\)"):
        storage.acquire({**HOLDER, "run_id": "b"})
    lock.release()
    lock.release()
    assert storage.size(LOCK) is None
    storage.acquire({**HOLDER, "run_id": "b"}).release()


def test_lock__many_takers__one_at_a_time(storage):
    inside, most, refused = [], [], []

    def take(taker):
        for number in range(50):
            try:
                lock = storage.acquire({**HOLDER, "run_id": f"{taker}-{number}"})
            except CommitConflictError:
                refused.append(1)
                continue
            inside.append(1)
            most.append(len(inside))
            inside.pop()
            lock.release()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(take, range(4)))
    assert set(most) == {1}
    assert len(most) + len(refused) == 200


@pytest.mark.fault("C-04")
def test_lock__left_by_another_host__needs_its_run_id(storage):
    storage.create(LOCK, json.dumps({**HOLDER, "host": "far\x1b[31m"}).encode())
    for wrong in (None, "b" * 32):
        with pytest.raises(CommitConflictError, match=r"break-lock \S+ 'a{32}'`") as fault:
            storage.acquire(HOLDER, break_lock=wrong)
        assert "\x1b" not in str(fault.value)
    storage.acquire(HOLDER, break_lock="a" * 32).release()


@pytest.mark.parametrize("text", [b"", b"{", b"[1]", b"\xff\xfe", b"[" * 5000])
def test_lock__left_unreadable__is_taken_over(disk, text):
    (Path(disk.url) / LOCK).write_bytes(text)
    disk.acquire(HOLDER).release()


def test_lock__child_that_was_forked__does_not_release_it(storage):
    lock = storage.acquire(HOLDER)
    if (child := os.fork()) == 0:
        lock.release()
        os._exit(0)
    os.waitpid(child, 0)
    assert storage.holder().alive
    lock.release()
    assert storage.holder() is None


def test_lock__interrupted_after_its_creation__is_removed(disk, monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    (Path(disk.url) / LOCK).write_bytes(b"{}")
    monkeypatch.setattr("dkfeat.store.storage.base.time.sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        disk.acquire(HOLDER)
    assert disk.holder() is None


@pytest.mark.parametrize("since", [(), ("machine", "boot", "pid_namespace", "pid_start")])  # not in version 0.2
def test_lock__of_a_process_that_the_system_hides__may_be_alive(disk, monkeypatch, since):
    def kill(_, signal):
        assert signal == 0
        raise PermissionError

    known = {key: value for key, value in this_process().items() if key not in since}
    process = {**known, "run_id": "a" * 32, "pid": 2**22 + 1}
    (Path(disk.url) / LOCK).write_text(json.dumps(process))
    assert disk.holder().alive is False
    monkeypatch.setattr(os, "kill", kill)
    with pytest.raises(CommitConflictError, match="cannot be determined from here whether that run is alive"):
        disk.acquire(HOLDER)


@pytest.mark.fault("S-16")
@pytest.mark.parametrize("folder", ["data", "_dkfeat"])
def test_names__of_a_run_that_was_killed_before_their_flush__are_flushed_before_the_commit(
    tmp_path, monkeypatch, folder
):
    job = TinyJob(write_sources(tmp_path / "in", files=1), tmp_path / "out")
    real, places = os.fsync, []

    def flush(descriptor):
        place = Path(f"/proc/self/fd/{descriptor}").readlink()
        last = "part-000001-0001-*" if folder == "data" else "records-*"
        if not places and place == tmp_path / "out" / folder and [*place.glob(last)]:
            places.append("killed")
            raise KeyboardInterrupt
        places.extend(["flushed"] * bool(places and place == tmp_path / "out" / folder))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", flush)
    with pytest.raises(KeyboardInterrupt):
        job.run()
    link = os.link
    monkeypatch.setattr(os, "link", lambda *names, **more: (places.append(names[1]), link(*names, **more)))
    job.run()
    assert places.index("flushed") < min(places.index(each) for each in places if each.startswith(("rec", "manifest")))


@pytest.mark.fault("S-16")
def test_order__of_system_calls(tmp_path, monkeypatch):
    calls = []

    def record(name, describe):
        real = getattr(os, name)

        def recorded(*arguments, **options):
            calls.append((name, describe(*arguments, **options)))
            return real(*arguments, **options)

        monkeypatch.setattr(os, name, recorded)

    record("fsync", lambda fd: str(Path(f"/proc/self/fd/{fd}").readlink()).removeprefix(str(tmp_path / "out")))
    record("link", lambda _, new, **__: new)
    record("unlink", lambda name, **_: name)
    job = TinyJob(write_sources(tmp_path / "in", files=1), tmp_path / "out")
    job.run()
    links = [new for name, new in calls if name == "link" and not new.startswith(("probe-", "lock.json"))]
    flushes = [place for name, place in calls if name == "fsync"]
    assert flushes[:4] == [str(tmp_path), "", "/data", "/_dkfeat"]  # of new folders, then of each file and its folder
    assert len(flushes) == 4 + 2 * len(links)
    assert links[:2] == ["spec.json", "plan-000001.json"]
    assert links[-2:] == ["manifest-000001.json", "_SUCCESS"]
    assert links[-3].startswith("records-")
    assert all(name.startswith("part-") for name in links[2:-3])
    assert len(links) > 4
    home = {"spec.json": "/_dkfeat", "plan-000001.json": "/_dkfeat", "manifest-000001.json": "/_dkfeat", "_SUCCESS": ""}
    for place, (name, new) in enumerate(calls):
        if name == "link" and new in links:
            before, after = calls[place - 1], calls[place + 1 : place + 3]
            assert before[0] == "fsync"
            assert before[1].startswith(f"/_dkfeat/tmp/{new}.")
            assert [call[0] for call in after] == ["unlink", "fsync"]
            assert after[1][1] == home.get(new, "/_dkfeat" if new == links[-3] else "/data")
    calls.clear()
    job.run()
    assert "fsync" not in dict(calls)  # a repeat with nothing to do


@pytest.mark.parametrize("is_new", [True, False])
def test_release__of_a_target_in_which_nothing_was_made__leaves_no_folders(tmp_path, monkeypatch, is_new):
    monkeypatch.chdir(tmp_path)
    store = LocalStorage("a/out")
    if not is_new:  # the user's own folder stays
        (tmp_path / "a" / "out").mkdir(parents=True)
    with store.acquire(HOLDER):
        store.prepare()
    assert sorted(tmp_path.rglob("*")) == ([] if is_new else [tmp_path / "a", tmp_path / "a" / "out"])


def test_release__removes_no_folder_of_the_next_run_nor_one_of_the_user(tmp_path, monkeypatch):
    """Another run tries to lock the target before each removal of a folder."""
    store, taken, rmdir = LocalStorage(str(tmp_path / "out")), [], Path.rmdir
    (tmp_path / "out" / DATA).mkdir(parents=True)
    with store.acquire(HOLDER):
        pass
    assert [path.name for path in (tmp_path / "out").iterdir()] == [DATA]

    def lock_and_remove(path):
        with suppress(TargetBusyError):
            taken.append(store.acquire(HOLDER | {"run_id": "b" * 32}))
        rmdir(path)

    with store.acquire(HOLDER):
        store.prepare()
        monkeypatch.setattr(Path, "rmdir", lock_and_remove)
    store.create(NAME.replace(DATA, META), b"")
    assert len(taken) == 1


def test_local_storage__takes_the_name_of_an_unknown_user_as_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert LocalStorage("~nobody-of-this-name").url == str(tmp_path / "~nobody-of-this-name")
