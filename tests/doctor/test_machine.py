"""Cores, memory, disk and the compiled loops."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from dkfeat.doctor import loops, machine


def check_of(found, name):
    return next(check for check in found if check.name == name)


def test_machine__is_looked_at():
    assert [check.name for check in machine.check_machine()] == ["threads", "memory", "temporary files"]


def test_threads__of_libraries_that_crowd_the_cores_are_a_warning(monkeypatch):
    monkeypatch.setattr(machine, "threadpool_info", lambda: [{"internal_api": "openblas", "num_threads": 64}])
    monkeypatch.setattr(machine, "CPU_COUNT", 4)
    check = check_of(machine.check_machine(), "threads")
    assert check.state == "warn"
    assert check.to_do.startswith("set OMP_NUM_THREADS=4")


def test_memory__that_is_short_is_a_warning_with_a_number_of_workers(monkeypatch):
    monkeypatch.setattr(machine, "CPU_COUNT", 8)
    monkeypatch.setattr(machine, "MEMORY_LIMIT", 2 << 30)
    check = check_of(machine.check_machine(), "memory")
    assert check.state == "warn"
    assert check.found.endswith("free of 2.0 GiB, for 8 cores")
    assert check.to_do.startswith("give --n-workers ")


def test_temporary_folder__that_is_missing_fails(monkeypatch, tmp_path):
    missing = str(tmp_path / "missing")
    monkeypatch.setattr(machine.dask.config, "get", lambda name, _: missing if name == "temporary-directory" else None)
    check = check_of(machine.check_machine(), "temporary files")
    assert (check.state, check.exit_code) == ("fail", 3)
    assert check.found == f"{missing} cannot be written: No such file or directory"


def test_loops__are_well_here():
    if loops.config.DISABLE_JIT:
        pytest.skip("without the JIT there is nothing to look at")
    cpu, cache, bits = loops.check_loops()
    assert (cpu.name, cache.name, bits.name) == ("cpu", "compile cache", "same bits")
    assert bits.state == "ok", bits.found
    assert "vectors of " in cpu.found


def test_bits__that_differ_fail(monkeypatch):
    monkeypatch.setattr(loops, "EXPECTED", "0" * 64)
    check = loops._bits(loops.digest_of_samples())
    assert (check.state, check.exit_code) == ("fail", 1)


def test_jit__that_is_off_is_a_warning(monkeypatch):
    monkeypatch.setattr(loops.config, "DISABLE_JIT", 1)
    (check,) = loops.check_loops()
    assert (check.state, check.to_do) == ("warn", "unset NUMBA_DISABLE_JIT")


def test_cpu__that_is_named_by_a_variable_is_a_warning(monkeypatch):
    monkeypatch.setenv("NUMBA_CPU_NAME", "generic")
    check = loops._cpu()
    assert check.state == "warn"
    assert "compiled for NUMBA_CPU_NAME=generic" in check.found
    assert check.to_do.startswith("unset NUMBA_CPU_NAME for full speed")


@pytest.mark.parametrize(
    ("folder", "variable", "counts", "state", "found"),
    [
        ("here", "1", (7, 0), "ok", "here: warm; 7 loops read"),
        ("here", "1", (2, 5), "ok", "here: was cold; 5 loops compiled in 9.0 s, and kept"),
        ("missing", "1", (0, 7), "warn", "missing: No such file or directory"),
        (None, "1", (0, 7), "warn", "no folder can be written: every process compiles its loops"),
        ("here", "0", (0, 7), "warn", "off, since DKFEAT_JIT_CACHE=0"),
    ],
)
def test_cache__is_judged(monkeypatch, tmp_path, folder, variable, counts, state, found):
    (tmp_path / "here").mkdir()
    place = folder and str(tmp_path / folder)
    monkeypatch.setattr(loops, "_dispatchers", lambda: [SimpleNamespace(stats=SimpleNamespace(cache_path=place))])
    monkeypatch.setenv("DKFEAT_JIT_CACHE", variable)
    check = loops._cache(*counts, 9.0)
    assert check.state == state
    assert found in check.found
    assert bool(check.to_do) == (state == "warn")


@pytest.mark.slow
def test_cold_cache__is_warmed_and_a_generic_cpu_gives_the_same_bits(tmp_path):
    """It compiles the loops of sampling twice, for half a minute."""
    words = "from dkfeat.doctor.loops import check_loops\nfor check in check_loops(): print(check.state, check.found)"
    for state in ("was cold", "warm"):
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_CPU_NAME": "generic"}
        done = subprocess.run(
            [sys.executable, "-c", words], env=environment, capture_output=True, text=True, check=True
        )
        cpu, cache, bits = done.stdout.splitlines()
        assert cpu.startswith("warn")
        assert state in cache
        assert bits.startswith("ok")
