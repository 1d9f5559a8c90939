"""Loops give the same bits on other CPUs and, where they are plain arithmetic, as plain Python."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from numba.core.codegen import get_host_cpu_features

from dkfeat import MaclaurinFeatures
from dkfeat.compiled.products.convolution import convolve_rows, spectra_of
from dkfeat.compiled.products.matrix import multiply_dense
from dkfeat.compiled.random import exponentials, levy, normals
from dkfeat.compiled.sampling import darts, gcws, minhash
from dkfeat.compiled.sampling.darts import signed_octaves
from dkfeat.compiled.sampling.feature_major import signed_logs
from tests.compiled.products.transforms import hadamard_rows
from tests.compiled.sampling.rows import csr, random_rows
from tests.programs import AVX2, ROOT


def convolution():
    for n in (256, 512, 1024):
        x = (np.arange(3 * n) % 17 / 16).astype(np.float32).reshape(3, n)
        weights = (np.arange(3 * n) % 29 / 32).reshape(3, n)
        out = np.empty((3, n), np.float32)
        convolve_rows(x, (np.arange(n) % 3).astype(np.uint16), spectra_of(weights), out, 0, n)
        yield out


def hadamard():
    for n in (16, 32, 256, 2048):
        rng = np.random.default_rng(n)
        rows, factors = (rng.standard_normal(shape).astype("f4") for shape in ((5, n), n))
        yield hadamard_rows(rows, factors)


def weights():
    yield normals(np.arange(4), 128, 16, 8)
    yield from (table(np.arange(50), 200, 41, 3) for table in (levy, exponentials))


def signs():
    X = np.random.default_rng(0).standard_normal((40, 150)).astype(np.float32)
    X[:20] *= np.random.default_rng(1).random((20, 150)) < 0.1
    features = MaclaurinFeatures(n_components=50, measure="proper", random_state=3).fit_width(150)
    yield features.transform(X)
    yield features.transform(sp.csr_matrix(X[:20]))


def products():
    for dtype, sums in ((np.float32, np.float32), (np.float64, np.float64), (np.float32, np.float64)):
        x, table = (np.random.default_rng(n).standard_normal(n).astype(dtype) for n in (13 * 200, 2 * 200 * 64))
        out = np.zeros(13 * 128, sums)
        multiply_dense(x, 13, 200, table, 128, out, 0, 128)
        yield out


def samples():
    for rows in (random_rows(600, 5000, 60, seed=8), random_rows(9, 50_000, 2000, seed=9)):
        arrays = csr(rows, signed_logs)
        yield from (*arrays, *gcws.encode(*arrays, 64, 3, 8, 2, "mixed"), *gcws.sample(*arrays, 64, 3))
        for power in (1.0, 0.7):
            arrays = csr(rows, signed_octaves, power)
            yield from (*arrays, *darts.encode(*arrays, 600, 3, 11), *darts.sample(*arrays, 64, 3))
        yield from minhash.encode(*arrays[:2], 600, 3, 11)


def digest(name):
    return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in globals()[name]())).hexdigest()


def digests(*names):
    return [digest(name) for name in names]


ARITHMETIC = ["convolution", "hadamard", "weights"]
"""Quick enough as plain Python."""


@pytest.mark.fault("D-06")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "names"),
    [
        (AVX2, [*ARITHMETIC, "samples"]),
        ({"NUMBA_CPU_NAME": "generic"}, [*ARITHMETIC, "signs", "samples"]),
        ({"NUMBA_DISABLE_JIT": "1"}, ARITHMETIC),
        pytest.param(
            AVX2,
            ["products"],
            marks=pytest.mark.skipif("+fma" not in get_host_cpu_features(), reason="needs a CPU with fused arithmetic"),
        ),
    ],
    ids=str,
)
def test_loops__same_bits(change, names):
    program = f"import json; from tests.compiled.test_cpus import digests; print(json.dumps(digests(*{names})))"
    environment = {key: value for key, value in os.environ.items() if key != "NUMBA_DISABLE_JIT"}
    command = [sys.executable, "-c", program]
    found = [
        subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True).stdout
        for env in (environment, environment | change)
    ]
    assert json.loads(found[0]) == json.loads(found[1])
