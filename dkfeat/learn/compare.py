"""Feature maps side by side: accuracy against the number of components, cost, and which one to take."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from sklearn.preprocessing import normalize

from dkfeat.errors import ConfigError
from dkfeat.learn.c_grid import (
    DEFAULT_C,
    LOSSES,
    LinearFit,
    best_of_grid,
    checked_grid,
    fit_best_c,
    fit_bytes,
    try_grid,
)
from dkfeat.learn.compared_rows import ComparedRows, load_rows
from dkfeat.learn.comparison import Comparison, Result, ResultStore
from dkfeat.learn.kernel_machine import KernelMachine
from dkfeat.learn.liblinear import scaled_rows, unit_scale
from dkfeat.learn.memory import check_fits
from dkfeat.maps import FourierFeatures, GCWSFeatures, NystroemFeatures
from dkfeat.validation import check_choice, check_integer, check_real

if TYPE_CHECKING:
    from os import PathLike

    from dkfeat.io.source import Source
    from dkfeat.maps import FeatureMap

__all__ = ["DEFAULT_GAMMA", "DEFAULT_K", "DEFAULT_MAPS", "MAPS", "compare"]

DEFAULT_MAPS = ("gcws", "nrff", "nystroem-gmm", "nystroem-rbf")
DEFAULT_K = (32, 64, 128, 256, 512, 1024)
DEFAULT_GAMMA = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
GAMMA_COMPONENTS = 256
"""Gamma is chosen at the largest number of components up to this, and kept for the others."""
EXACT_ROWS = 3000
"""Most training rows on which exact kernel machines are fitted unless they are asked for."""

KERNELS: Mapping[str, str] = {
    "gcws": "gmm",
    "nrff": "rbf_cosine",
    "rff": "rbf_cosine",
    "nystroem-gmm": "gmm",
    "nystroem-rbf": "rbf_cosine",
}
MAPS: Mapping[str, Callable[[int, Any, int], FeatureMap]] = {
    "gcws": lambda k, _, seed: GCWSFeatures(n_components=k, random_state=seed),
    "nrff": lambda k, gamma, seed: FourierFeatures(n_components=k, gamma=gamma, random_state=seed),
    "rff": lambda k, gamma, seed: FourierFeatures(n_components=k, gamma=gamma, normalize=False, random_state=seed),
    "nystroem-gmm": lambda k, _, seed: NystroemFeatures(n_components=k, kernel="gmm", random_state=seed),
    "nystroem-rbf": lambda k, gamma, seed: NystroemFeatures(
        n_components=k, kernel="rbf_cosine", kernel_params={"gamma": gamma}, random_state=seed
    ),
}
"""Maps by the names that a comparison gives them, made of components, gamma and seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    """What decides every number of a comparison but the times."""

    C: tuple[float, ...]
    gamma: tuple[float, ...]
    gamma_components: int
    loss: str
    validation_fraction: float
    test_fraction: float | None
    seed: int

    @property
    def fitting(self) -> dict[str, Any]:
        """What LIBLINEAR is told beside C."""
        return {"loss": self.loss, "validation_fraction": self.validation_fraction, "seed": self.seed}


def compare(
    source: Source | str | Sequence[str],
    *,
    test: Source | str | Sequence[str] | None = None,
    maps: Sequence[str] = DEFAULT_MAPS,
    k: Sequence[int] = DEFAULT_K,
    C: float | Sequence[float] = DEFAULT_C,
    gamma: float | Sequence[float] = DEFAULT_GAMMA,
    loss: Literal["squared_hinge", "hinge", "log_loss"] = "squared_hinge",
    linear: bool = True,
    exact: Literal["auto"] | bool = "auto",
    within: float = 0.005,
    validation_fraction: float = 0.1,
    test_fraction: float = 0.25,
    random_state: int = 0,
    out: str | PathLike[str] | None = None,
    progress: bool | Callable[[Result], object] = True,
) -> Comparison:
    """Train a linear model on the features of several maps and sizes, and recommend one.

    All rows are held in memory. On disk, if `out` is given: a line of ``results.jsonl`` as soon as a number is known,
    and at the end the table as text, JSON and CSV and, where matplotlib is installed, the plot. A comparison that was
    interrupted goes on where it was if it is asked for once more with the same settings and files.

    Parameters
    ----------
    source : LibsvmSource, ParquetSource, str or sequence of str
        Rows of one class each: a source, or the path, glob or URL of LIBSVM text.
    test : like `source`, optional
        Rows on which accuracy is told. Left out: a part of the rows, chosen by seed.
    maps : sequence of str
        Of "gcws", "nrff", "rff", "nystroem-gmm" and "nystroem-rbf". The RBF kernel is ``exp(-gamma (1 - cosine))``.
    k : sequence of int
        Numbers of components. Nyström maps leave out those beyond the number of training rows.
    C, gamma : float or sequence of float
        Each is chosen on a held-out part of the training rows: C for every model, gamma for every map of an RBF kernel
        at the largest of `k` up to 256.
    loss : {"squared_hinge", "hinge", "log_loss"}, default="squared_hinge"
        Of LIBLINEAR.
    linear : bool, default=True
        Whether a linear model on the raw rows, scaled to unit length, is trained too.
    exact : "auto" or bool, default="auto"
        Whether exact kernel machines are fitted too; "auto": up to 3,000 training rows.
    within : float, default=0.005
        Accuracy below the best map's that a cheaper one may have to be recommended.
    validation_fraction, test_fraction : float
        Parts that are held out, in (0, 1).
    random_state : int, default=0
        Seed of maps and parts, at least 0.
    out : str or path, optional
        Local folder for results.
    progress : bool or callable, default=True
        True tells each result on standard error. A callable is given it.

    Returns
    -------
    comparison : Comparison
        Results, recommendation, tables and plot.

    Raises
    ------
    ConfigError
        For a setting out of range.
    SpecConflictError
        If `out` holds results of other settings or files.
    InputError
        For no rows, or rows of one class.
    PlanError
        If rows or features do not fit in memory.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from sklearn.datasets import dump_svmlight_file, load_iris
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "iris.svm"
    >>> dump_svmlight_file(*load_iris(return_X_y=True), str(path), zero_based=False)
    >>> comparison = compare(path, maps=["gcws"], k=[16, 64], C=1.0, exact=False, progress=False)
    >>> [(result.name, result.k, result.row_bytes) for result in comparison.results]
    [('linear', None, 16), ('gcws', 16, 16), ('gcws', 64, 64)]
    """
    names = [check_choice(name, "maps", tuple(MAPS)) for name in dict.fromkeys(maps)]
    sizes = sorted({check_integer(each, "k", low=1) for each in k})
    if not names or not sizes:
        message = "a comparison needs one map and one number of components or more; name them in maps and k"
        raise ConfigError(message)
    within = check_real(within, "within")
    for name, fraction in (("validation_fraction", validation_fraction), ("test_fraction", test_fraction)):
        if not check_real(fraction, name, above=0) < 1:
            message = f"{name}={fraction:g}, but it must be below 1"
            raise ConfigError(message)
    settings = _Settings(
        C=checked_grid(C),
        gamma=checked_grid(gamma, "gamma"),
        gamma_components=max([size for size in sizes if size <= GAMMA_COMPONENTS], default=sizes[0]),
        loss=check_choice(loss, "loss", LOSSES),
        validation_fraction=validation_fraction,
        test_fraction=None if test is not None else test_fraction,
        seed=check_integer(random_state, "random_state", low=0, high=2**63),
    )
    rows = load_rows(
        _source(source), None if test is None else _source(test), test_fraction=test_fraction, seed=settings.seed
    )
    n_rows = rows.X.shape[0]
    exactly = n_rows <= EXACT_ROWS if exact == "auto" else bool(exact)
    store = ResultStore(out, {**asdict(settings), "files": list(rows.files)}, progress)
    if linear:
        store.result("linear", None, partial(_linear, rows, settings))
    for kernel in dict.fromkeys(KERNELS[name] for name in names) if exactly else ():
        store.result(f"exact {kernel}", None, partial(_exact, rows, kernel, settings))
    for name in names:
        able = [size for size in sizes if size <= n_rows or not name.startswith("nystroem")]
        chosen: float | None = None
        if KERNELS[name] == "rbf_cosine" and able:
            chosen = store.value(f"gamma of {name}", partial(_best_gamma, rows, name, settings))
        for size in able:
            store.result(name, size, partial(_mapped, rows, name, size, chosen, settings))
    comparison = Comparison(
        results=store.results, within=within, n_train=n_rows, n_test=len(rows.y_test), settings=asdict(settings)
    )
    if out is not None:
        comparison.save(out)
    return comparison


def _source(given: Any) -> Source:
    # readers load when there is something to read
    from dkfeat.engine.settle import as_source

    return as_source(given)


def _linear(rows: ComparedRows, settings: _Settings) -> Result:
    began = time.perf_counter()
    fitted = _fit(normalize(rows.X.astype(np.float64)), rows.y, settings)
    seconds = time.perf_counter() - began
    accuracy = fitted.score(normalize(rows.X_test.astype(np.float64)), rows.y_test)
    row_bytes = 8 * rows.X.nnz / rows.X.shape[0]  # column and value, 4 bytes each
    dense = 4 * rows.X.shape[1]
    return Result(
        name="linear", accuracy=accuracy, C=fitted.C, row_bytes=round(min(row_bytes, dense)), fit_seconds=seconds
    )


def _exact(rows: ComparedRows, kernel: str, settings: _Settings) -> Result:
    began = time.perf_counter()
    params = [{"gamma": gamma} for gamma in settings.gamma] if kernel == "rbf_cosine" else None
    machine = KernelMachine(
        kernel, params, settings.C, validation_fraction=settings.validation_fraction, random_state=settings.seed
    ).fit(rows.X, rows.y)
    seconds = time.perf_counter() - began
    return Result(
        name=f"exact {kernel}",
        accuracy=float(machine.score(rows.X_test, rows.y_test)),
        C=machine.C_,
        gamma=_gamma_of(machine),
        fit_seconds=seconds,
    )


def _gamma_of(machine: KernelMachine) -> float | None:
    gamma: Any = machine.kernel_params_.get("gamma")
    return gamma


def _mapped(rows: ComparedRows, name: str, k: int, gamma: float | None, settings: _Settings) -> Result:
    began = time.perf_counter()
    feature_map, X = _features(rows, name, k, gamma, settings)
    mapped = time.perf_counter()
    fitted = _fit(X, rows.y, settings)
    seconds = time.perf_counter() - mapped
    del X
    X_test = scaled_rows(feature_map.transform(rows.X_test), unit_scale(feature_map))
    return Result(
        name=name,
        k=k,
        accuracy=fitted.score(X_test, rows.y_test),
        C=fitted.C,
        gamma=gamma,
        row_bytes=feature_map.encoded_row_bytes,
        map_seconds=mapped - began,
        fit_seconds=seconds,
    )


def _best_gamma(rows: ComparedRows, name: str, settings: _Settings) -> float:
    k = min(settings.gamma_components, rows.X.shape[0])
    candidates: list[dict[str, Any]] = []
    for gamma in settings.gamma if len(settings.gamma) > 1 else ():
        _, X = _features(rows, name, k, gamma, settings)
        grid = try_grid(X, rows.y, settings.C, **settings.fitting)
        candidates.append({"gamma": gamma, "accuracy": best_of_grid(grid)["accuracy"]})
    return float(best_of_grid(candidates)["gamma"]) if candidates else settings.gamma[0]


def _features(
    rows: ComparedRows, name: str, k: int, gamma: float | None, settings: _Settings
) -> tuple[FeatureMap, Any]:
    feature_map = MAPS[name](k, gamma, settings.seed).fit(rows.X)
    n_rows, width = rows.X.shape[0], feature_map.n_features_out
    sparse = feature_map.layout == "codes"
    outputs = len(np.unique(rows.y))
    needed = fit_bytes(n_rows, width, n_rows * (k if sparse else width), outputs, sparse=sparse, grid=True)
    check_fits(needed, f"LIBLINEAR on {name} of {k:,} components", "compare on fewer rows or components")
    return feature_map, scaled_rows(feature_map.transform(rows.X), unit_scale(feature_map))


def _fit(X: Any, y: Any, settings: _Settings) -> LinearFit:
    return fit_best_c(X, y, settings.C, **settings.fitting)
