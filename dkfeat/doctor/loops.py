"""Checks of the compiled loops: CPU, vector width, compile cache, and bit-exact results."""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numba
import numpy as np
from llvmlite import binding
from numba.core import config
from numba.core.dispatcher import Dispatcher

from dkfeat.compiled.simd import vector as simd
from dkfeat.doctor import Check
from dkfeat.errors import cause_of
from dkfeat.maps.darts import DartFeatures
from dkfeat.maps.gcws import GCWSFeatures
from dkfeat.messages import counted

EXPECTED = "4b40e6e3c6675fc0a4a1c6e98ee49a0bf6f7925a5929f5f071e697323802a6dd"
"""Result of `digest_of_samples` on every machine."""

_WIDTHS = (("%zmm", 512), ("%ymm", 256), ("%xmm", 128), (r"\bv\d+\.4s", 128))
_FEATURES = ("avx512f", "avx2", "sse4.2", "sve", "neon")


def check_loops() -> Iterator[Check]:
    """Check the CPU, compile a loop, run the loops of GCWS and darts and compare their results."""
    if config.DISABLE_JIT:  # type: ignore[attr-defined]  # numba sets it from the environment
        yield Check(
            "cpu",
            "warn",
            "loops run as plain Python, hundreds of times slower, since NUMBA_DISABLE_JIT is set",
            "unset NUMBA_DISABLE_JIT",
        )
        return
    yield _cpu()
    before = _loaded_and_compiled()
    began = time.perf_counter()
    digest = digest_of_samples()
    seconds = time.perf_counter() - began
    loaded, compiled = (now - then for now, then in zip(_loaded_and_compiled(), before, strict=True))
    yield _cache(loaded, compiled, seconds)
    yield _bits(digest)


def digest_of_samples() -> str:
    """Digest of the samples of a few rows, whose bits are the same on every machine.

    Returns
    -------
    digest : str
        SHA-256, in hexadecimal, of 64 samples of GCWS and of darts of 4 rows.
    """
    rows = np.array([[0, 1.5, -2, 0, 3e-3], [1, 0, 0, 0, 0], [-1, 2**-20, 5, 7, 1e6], [0, 0, 0, 0, 0]], np.float32)
    maps = GCWSFeatures(64, random_state=7), DartFeatures(64, random_state=7)
    samples = [array for features in maps for array in features.fit(rows).sample(rows)]
    return hashlib.sha256(b"".join(array.astype("<i8").tobytes() for array in samples)).hexdigest()


def _cpu() -> Check:
    host = binding.get_host_cpu_name()
    has = [name for name in _FEATURES if binding.get_host_cpu_features().get(name)]
    width = vector_bits()
    found = f"{host}{f' with {has[0]}' if has else ''}; loops use vectors of {width} bits"
    variables = [name for name in ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES") if os.environ.get(name)]
    if variables:
        flags = ", ".join(f"{name}={os.environ[name]:.40}" for name in variables)
        to_do = f"unset {' and '.join(variables)} for full speed; the results are the same"
        return Check("cpu", "warn", f"{found}, compiled for {flags}", to_do)
    return Check("cpu", "ok", found)


def vector_bits() -> int:
    """Width in bits of the widest registers in the compiled sum of two vectors."""

    def add(x: Any, y: Any, total: Any) -> None:
        simd.store(total, 0, simd.load(x, 0) + simd.load(y, 0))

    array = numba.float32[::1]
    loop = numba.njit(numba.void(array, array, array))(add)
    text = "\n".join(loop.inspect_asm().values())
    return next((bits for pattern, bits in _WIDTHS if re.search(pattern, text)), 32)


def _dispatchers() -> list[Dispatcher]:
    modules = [module for name, module in sys.modules.items() if name.startswith("dkfeat.compiled.")]
    found = {id(loop): loop for module in modules for loop in vars(module).values() if isinstance(loop, Dispatcher)}
    return list(found.values())


def _loaded_and_compiled() -> tuple[int, int]:
    """Count the loops read from the cache so far, and the loops compiled."""
    known = [loop.stats for loop in _dispatchers()]
    return sum(len(one.cache_hits) for one in known), sum(len(one.cache_misses) for one in known)


def _cache(loaded: int, compiled: int, seconds: float) -> Check:
    name = "compile cache"
    if os.environ.get("DKFEAT_JIT_CACHE") == "0":
        found = f"off, since DKFEAT_JIT_CACHE=0: every process compiles its loops, those of sampling in {seconds:.1f} s"
        return Check(name, "warn", found, "unset DKFEAT_JIT_CACHE")
    folders = {Path(path) for loop in _dispatchers() if (path := loop.stats.cache_path)}
    to_do = "set NUMBA_CACHE_DIR to a folder that can be written, on a disk that all workers of a machine share"
    if not folders:
        found = f"no folder can be written: every process compiles its loops, those of sampling in {seconds:.1f} s"
        return Check(name, "warn", found, to_do)
    paths = ", ".join(sorted(map(str, folders)))
    for folder in folders:
        try:
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as fault:
            return Check(name, "warn", f"{folder}: {cause_of(fault)}", to_do)
    if compiled:
        made = f"{counted(compiled, 'loop')} compiled in {seconds:.1f} s, and kept"
        return Check(name, "ok", f"{paths}: was cold; {made}")
    return Check(name, "ok", f"{paths}: warm; {counted(loaded, 'loop')} read")


def _bits(digest: str) -> Check:
    if digest == EXPECTED:
        return Check("same bits", "ok", "this CPU gives the samples that all machines give")
    return Check(
        "same bits",
        "fail",
        "this CPU gives other samples than other machines do",
        "do not combine its shards with those of other machines; report this, with the line of the check cpu",
        exit_code=1,
    )
