import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="about compiled code")

# takes 0.1 s to compile; says how many loops were compiled and how many read from disk
PROGRAM = """
import numpy as np
from dkfeat.compiled.random import draw_words
words = np.zeros((2, 4), np.uint32)
draw_words(np.uint64(0), np.uint64(0), np.uint64(0), words)
stats = draw_words.stats
print(words[0, 0], sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
"""
WORD = str(0x6627E8D5)


def run(package_root=ROOT, program=PROGRAM, **environment):
    completed = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environment},
        cwd=package_root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    return completed.stdout.split()


@pytest.mark.slow
@pytest.mark.fault("D-14")
def test_cache__edit_of_an_inlined_helper_is_seen(tmp_path):
    package = tmp_path / "dkfeat"
    shutil.copytree(ROOT / "dkfeat", package, ignore=shutil.ignore_patterns("__pycache__"))
    cache = str(tmp_path / "cache")
    edited = package / "compiled" / "simd.py"
    assert run(tmp_path, NUMBA_CACHE_DIR=cache) == [WORD, "0", "1"]
    edited.write_text(edited.read_text() + "\n# edited\n")
    assert run(tmp_path, NUMBA_CACHE_DIR=cache) == [WORD, "0", "1"]


@pytest.mark.slow
@pytest.mark.fault("D-14")
def test_cache__other_cpu_is_not_used(tmp_path):
    run(NUMBA_CACHE_DIR=str(tmp_path))
    assert run(NUMBA_CACHE_DIR=str(tmp_path), NUMBA_CPU_NAME="generic") == [WORD, "0", "1"]


@pytest.mark.slow
@pytest.mark.fault("D-14")
@pytest.mark.parametrize(
    ("suffix", "end"),
    [("nbc", -1), ("nbi", 0), *(pytest.param(*case, marks=pytest.mark.slow) for case in (("nbc", 0), ("nbi", -1)))],
)
def test_cache__damaged_entry_is_made_again(tmp_path, suffix, end):
    run(NUMBA_CACHE_DIR=str(tmp_path))
    (entry,) = tmp_path.glob(f"*/*draw_words*.{suffix}")
    whole = entry.read_bytes()
    entry.write_bytes(whole[:end])
    assert run(NUMBA_CACHE_DIR=str(tmp_path))[0] == WORD
    assert len(entry.read_bytes()) == len(whole)
    assert run(NUMBA_CACHE_DIR=str(tmp_path)) == [WORD, "1", "0"]


@pytest.mark.slow
@pytest.mark.fault("D-14")
def test_cache__nowhere_to_write(tmp_path):
    # a file where each of numba's folders would have to be
    package = tmp_path / "dkfeat"
    shutil.copytree(ROOT / "dkfeat", package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "compiled" / "__pycache__").write_text("")
    blocked = tmp_path / "file"
    blocked.write_text("")
    places = {"NUMBA_CACHE_DIR": str(blocked / "a"), "XDG_CACHE_HOME": str(blocked / "b"), "HOME": str(blocked / "c")}
    assert run(tmp_path, **places)[0] == WORD


@pytest.mark.slow
@pytest.mark.fault("D-14")
def test_cache__folder_vanishes(tmp_path):
    cache = tmp_path / "cache"
    program = (
        f"import shutil, dkfeat.compiled.random; shutil.rmtree({str(cache)!r}); open({str(cache)!r}, 'w')" + PROGRAM
    )
    assert run(program=program, NUMBA_CACHE_DIR=str(cache))[0] == WORD


@pytest.mark.slow
@pytest.mark.fault("D-14")
def test_cache__switch(tmp_path):
    assert run(NUMBA_CACHE_DIR=str(tmp_path), DKFEAT_JIT_CACHE="0")[0] == WORD
    assert not list(tmp_path.rglob("*.nbc"))
    wrong = (
        "try:\n    import dkfeat.compiled.random\n"
        "except ValueError as error:\n    print('DKFEAT_JIT_CACHE' in str(error), 'yes' in str(error))"
    )
    assert run(program=wrong, DKFEAT_JIT_CACHE="yes") == ["True", "True"]


@pytest.mark.slow
@pytest.mark.fault("D-14")
def test_cache__two_processes_at_once(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    racers = [
        subprocess.Popen([sys.executable, "-c", PROGRAM], env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert [racer.communicate()[0].split()[0] for racer in racers] == [WORD, WORD]
    assert run(NUMBA_CACHE_DIR=str(tmp_path)) == [WORD, "1", "0"]
