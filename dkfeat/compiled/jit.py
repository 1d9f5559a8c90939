"""Flags of numba, the cache on disk and the layout of arrays, shared by all compiled loops.

Loops are serial and release the GIL; Dask runs them in parallel. Arithmetic is strict IEEE, without contraction into
fused operations and without reassociation, so that all CPUs give the same bits.

Machine code is cached in numba's folders: ``NUMBA_CACHE_DIR`` if set, else ``__pycache__`` beside the sources, else the
user's cache folder; if none is writeable, each process compiles the loops. numba itself checks only the file of the
outermost function, and would run old code after an edit of a helper in another file. Here, the name of an entry is a
hash of everything that its code depends on: the sources of this package, numba's version, the CPU, its features and the
types of the arguments. So a stale or foreign entry is never found, a damaged one fails its checksum, and processes that
compile at the same time write the same bytes to the same name.

``DKFEAT_JIT_CACHE=0`` turns the cache off. ``NUMBA_DISABLE_JIT=1`` runs everything as plain Python.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np
from numba.core import config
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.event import Event, Listener, register
from numpy.typing import NDArray

F = TypeVar("F", bound=Callable)

_FLAGS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": False, "boundscheck": False}


def kernel(function: F) -> F:
    """Compile a loop for calls from Python, at its first call.

    Parameters
    ----------
    function : callable
        Function of arrays and scalars that its caller has checked; it is compiled once for each set of argument types.

    Returns
    -------
    compiled : callable

    Examples
    --------
    >>> @kernel
    ... def total(values):
    ...     s = 0.0
    ...     for value in values:
    ...         s += value
    ...     return s
    >>> float(total(np.ones(3)))
    3.0
    """
    compiled = numba.njit(**_FLAGS)(function)
    if not config.DISABLE_JIT and _is_cache_enabled():  # type: ignore[attr-defined]  # numba sets it from the environment
        with suppress(RuntimeError):  # no writeable folder or no source file: run without a cache
            compiled._cache = _Cache(function)
    return compiled


def inlined(function: F) -> F:
    """Compile a helper that is inlined into the loops that call it."""
    return numba.njit(forceinline=True, **_FLAGS)(function)


def owned(array: NDArray, dtype: Any = None) -> NDArray:
    """Return the array itself if it is contiguous, aligned and writeable, else a copy that is.

    numba compiles a loop for each layout of its arrays, also for read-only ones; this function gives them one layout.

    Examples
    --------
    >>> values = np.ones(3)
    >>> owned(values) is values, owned(values[::2]).flags.c_contiguous
    (True, True)
    >>> owned(np.ones(3, np.float32), np.dtype("float64")).dtype
    dtype('float64')
    """
    if array.flags.carray and (dtype is None or array.dtype == dtype):
        return array
    return np.require(array, dtype, ("C", "A", "W"))


def aligned(count: int, dtype: Any) -> NDArray:
    """Make an uninitialised flat array that starts at a cache line, so that no vector in it is on two lines.

    Examples
    --------
    >>> aligned(3, np.float64).ctypes.data % 64
    0
    """
    size = np.dtype(dtype).itemsize
    memory = np.empty(count * size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + count * size].view(dtype)


class _Compilations(Listener):
    """Counts the loops that are being compiled now, because the cache lacks them."""

    running = 0

    def on_start(self, event: Event) -> None:  # noqa: ARG002 - numba's
        self.running += 1

    def on_end(self, event: Event) -> None:  # noqa: ARG002 - numba's
        self.running -= 1


COMPILATIONS = _Compilations()
register("numba:compile", COMPILATIONS)


def _is_cache_enabled() -> bool:
    switch = os.environ.get("DKFEAT_JIT_CACHE", "1")
    if switch not in ("0", "1"):
        raise ValueError(
            f"DKFEAT_JIT_CACHE={switch!r}, but the switch of the compile cache is 0 or 1; unset it for the default, 1"
        )
    return switch == "1"


@cache
def _sources() -> str:
    digest = hashlib.sha256()
    folder = Path(__file__).parent
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


class _Entries:
    """Cache files of one function's machine code; each index has a single entry."""

    def __init__(self, folder: str, name: str, depends_on: tuple[Any, ...]) -> None:
        self._folder, self._name, self._depends_on = folder, name, depends_on

    def _file(self, key: Any) -> IndexDataCacheFile:
        stamp = hashlib.sha256(repr((self._depends_on, key)).encode()).hexdigest()[:32]
        return IndexDataCacheFile(self._folder, f"{self._name}.{stamp}", stamp)

    def load(self, key: Any) -> Any:
        return self._file(key).load(key)

    def save(self, key: Any, code: Any) -> None:
        file = self._file(key)
        file.flush()  # an unreadable index would block later entries
        file.save(key, code)

    def flush(self) -> None:
        for path in Path(self._folder).glob(f"{self._name}.*.nb[ic]"):
            path.unlink(missing_ok=True)


class _Cache(FunctionCache):
    """numba's cache of a function with dkfeat's names of entries; after disk errors, functions are compiled again."""

    def __init__(self, function: Callable) -> None:
        super().__init__(function)
        depends_on = (numba.__version__, _sources(), self._impl.locator.get_source_stamp())
        self._cache_file = _Entries(  # type: ignore[assignment]  # the same methods
            self._cache_path, self._impl.filename_base, depends_on
        )

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        with suppress(Exception):  # a truncated file makes numba raise errors of any type
            return super().load_overload(sig, target_context)
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        with suppress(OSError):
            super().save_overload(sig, data)
