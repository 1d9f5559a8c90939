"""Processor, width of the vectors of compiled code, and versions on which the speed depends, as a line of JSON.

python benchmarks/machine.py
"""

from __future__ import annotations

import json
import os
import platform
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import llvmlite.binding
import numba
import numpy as np
from threadpoolctl import threadpool_info

from dkfeat.compiled import simd

AVX2_LOOPS = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx,+avx2,+fma,+sse4.2,+bmi,+bmi2"}
"""Environment in which numba compiles for AVX2 alone; the name by itself leaves AVX-512 on."""
AVX2 = {**AVX2_LOOPS, "OPENBLAS_CORETYPE": "Haswell", "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR"}
"""Environment in which NumPy and OpenBLAS use AVX2 alone too, as they would on a processor that has no more."""
PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "datasketch")


WIDTHS = (("%zmm", 512), ("%ymm", 256), ("%xmm", 128), (r"\bv\d+\.4s", 128))


def vector_bits() -> int:
    """Width in bits of the widest registers in the compiled sum of two vectors."""

    def add(x: Any, y: Any, total: Any) -> None:
        simd.store(total, 0, simd.load(x, 0) + simd.load(y, 0))

    array = numba.float32[::1]
    loop = numba.njit(numba.void(array, array, array))(add)
    text = "\n".join(loop.inspect_asm().values())
    return next((bits for pattern, bits in WIDTHS if re.search(pattern, text)), 32)


def machine() -> dict[str, Any]:
    """Name the processor, and what is in use of it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    extensions = np.show_config(mode="dicts")["SIMD Extensions"]
    libraries = {
        f"{each['internal_api']} {each['architecture']}" for each in threadpool_info() if "architecture" in each
    }
    return {
        "processor": f"{name or platform.processor()}, {llvmlite.binding.get_host_cpu_name()}",
        "cores": os.cpu_count(),
        "code_for": os.environ.get("NUMBA_CPU_NAME", "this processor"),
        "vector_bits": vector_bits(),
        "numpy_for": (extensions["baseline"] + extensions.get("found", []))[-1],
        "blas": ", ".join(sorted(libraries)),
        "versions": {"Python": platform.python_version(), **{package: version(package) for package in PACKAGES}},
    }


if __name__ == "__main__":
    print(json.dumps(machine()))
