"""The models of a comparison: on raw rows, on the features of a map, and with exact kernels."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import normalize

from dkfeat.learn.c_grid import LinearFit, best_of_grid, fit_best_c, fit_bytes, try_grid
from dkfeat.learn.comparison import Result
from dkfeat.learn.kernel_machine import KernelMachine
from dkfeat.learn.liblinear import scaled_rows, unit_scale
from dkfeat.learn.memory import check_fits
from dkfeat.maps import FourierFeatures, GCWSFeatures, NystroemFeatures

if TYPE_CHECKING:
    from dkfeat.learn.compared_rows import ComparedRows
    from dkfeat.maps import FeatureMap

__all__ = ["KERNELS", "MAPS", "FitSettings", "choose_gamma", "fit_exact", "fit_linear", "fit_mapped"]

KERNELS: Mapping[str, str] = {
    "gcws": "gmm",
    "nrff": "rbf_cosine",
    "rff": "rbf_cosine",
    "nystroem-gmm": "gmm",
    "nystroem-rbf": "rbf_cosine",
}
"""Kernels that the maps stand for."""
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

ADVICE = "compare on fewer rows or components"
TESTED_BYTES = 256 << 20
"""Features of test rows held at a time."""
TIMED_SECONDS = 0.05
"""Rows are mapped again until this time is over, and the fastest time counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitSettings:
    """What decides every number of a comparison but the times, beside the rows."""

    C: tuple[float, ...]
    gamma: tuple[float, ...]
    gamma_components: int
    """Components with which gamma is chosen."""
    loss: str
    validation_fraction: float
    test_fraction: float | None
    seed: int

    @property
    def fitting(self) -> dict[str, Any]:
        """What LIBLINEAR is told beside C."""
        return {"loss": self.loss, "validation_fraction": self.validation_fraction, "seed": self.seed}


def fit_linear(rows: ComparedRows, settings: FitSettings) -> Result:
    """Fit a linear model to the raw rows, scaled to unit length."""
    n_rows, width = rows.X.shape
    needed = fit_bytes(n_rows, width, rows.X.nnz, len(np.unique(rows.y)), sparse=True, grid=True)
    check_fits(needed, "LIBLINEAR on the raw rows", ADVICE)
    fitted, accuracy, seconds = _fit(normalize(rows.X.astype(np.float64)), rows.y, settings)
    row_bytes = min(8 * rows.X.nnz / n_rows, 4 * width)  # column and value of 4 bytes each, or all values
    return Result(
        name="linear",
        accuracy=fitted.score(normalize(rows.X_test.astype(np.float64)), rows.y_test),
        validation_accuracy=accuracy,
        C=fitted.C,
        row_bytes=round(row_bytes),
        fit_seconds=seconds,
    )


def fit_exact(rows: ComparedRows, kernel: str, settings: FitSettings) -> Result:
    """Fit an exact kernel machine."""
    began = time.perf_counter()
    params = [{"gamma": gamma} for gamma in settings.gamma] if kernel == "rbf_cosine" else None
    machine = KernelMachine(
        kernel, params, settings.C, validation_fraction=settings.validation_fraction, random_state=settings.seed
    ).fit(rows.X, rows.y)
    seconds = time.perf_counter() - began
    chosen: Mapping[str, Any] = machine.kernel_params_
    return Result(
        name=f"exact {kernel}",
        accuracy=float(machine.score(rows.X_test, rows.y_test)),
        validation_accuracy=best_of_grid(machine.grid_)["accuracy"] if machine.grid_ else None,
        C=machine.C_,
        gamma=chosen.get("gamma"),
        fit_seconds=seconds,
    )


def fit_mapped(rows: ComparedRows, name: str, k: int, gamma: float | None, settings: FitSettings) -> Result:
    """Fit a linear model to the features of a map."""
    feature_map, X = _features(rows, name, k, gamma, settings)  # this also compiles loops and makes tables
    fitted, accuracy, seconds = _fit(X, rows.y, settings)
    del X
    test_accuracy, row_seconds = _tested(fitted, feature_map, rows.X_test, rows.y_test)
    return Result(
        name=name,
        k=k,
        accuracy=test_accuracy,
        validation_accuracy=accuracy,
        C=fitted.C,
        gamma=gamma,
        row_bytes=feature_map.encoded_row_bytes,
        row_microseconds=1e6 * row_seconds,
        fit_seconds=seconds,
    )


def choose_gamma(
    rows: ComparedRows, name: str, settings: FitSettings, tell: Callable[[str], object] = lambda _: None
) -> float:
    """Choose gamma for a map of an RBF kernel, with the C that suits each; of equal ones the smallest."""
    if len(settings.gamma) == 1:
        return settings.gamma[0]
    k = min(settings.gamma_components, rows.X.shape[0])
    candidates: list[dict[str, Any]] = []
    for gamma in settings.gamma:
        _, X = _features(rows, name, k, gamma, settings)
        accuracy = best_of_grid(try_grid(X, rows.y, settings.C, **settings.fitting))["accuracy"]
        del X
        candidates.append({"gamma": gamma, "accuracy": accuracy})
        tell(f"{name}, {k:,} components, gamma {gamma:g}: held-out accuracy {accuracy:.2%}")
    return float(best_of_grid(candidates)["gamma"])


def _features(
    rows: ComparedRows, name: str, k: int, gamma: float | None, settings: FitSettings
) -> tuple[FeatureMap, Any]:
    """Map and features of the training rows, if there is room to fit a model to them."""
    feature_map = MAPS[name](k, gamma, settings.seed).fit(rows.X)
    n_rows, width = rows.X.shape[0], feature_map.n_features_out
    sparse = feature_map.layout == "codes"
    outputs = len(np.unique(rows.y))
    needed = fit_bytes(n_rows, width, n_rows * (k if sparse else width), outputs, sparse=sparse, grid=True)
    check_fits(needed, f"LIBLINEAR on {name} of {k:,} components", ADVICE)
    return feature_map, scaled_rows(feature_map.transform(rows.X), unit_scale(feature_map))


def _fit(X: Any, y: NDArray[Any], settings: FitSettings) -> tuple[LinearFit, float, float]:
    """Fit the best C to all rows; also give its held-out accuracy, which one C alone has too, and seconds."""
    began = time.perf_counter()
    best = best_of_grid(try_grid(X, y, settings.C, **settings.fitting))
    fitted = fit_best_c(X, y, [best["C"]], **settings.fitting)
    return fitted, best["accuracy"], time.perf_counter() - began


def _tested(fitted: LinearFit, feature_map: FeatureMap, X: Any, y: NDArray[Any]) -> tuple[float, float]:
    """Share of rows that get their own label, and seconds to map one of them."""
    stored = feature_map.n_components if feature_map.layout == "codes" else feature_map.n_features_out
    step = max(1, TESTED_BYTES // (16 * stored))
    hits, seconds = 0, 0.0
    for start in range(0, X.shape[0], step):
        features, spent = _timed(feature_map.transform, X[start : start + step])
        own = y[start : start + step]
        hits += int(np.count_nonzero(fitted.predict(scaled_rows(features, unit_scale(feature_map))) == own))
        seconds += spent
    return hits / len(y), seconds / len(y)


def _timed(call: Callable[[Any], Any], argument: Any) -> tuple[Any, float]:
    """Give what a call gives, and its least seconds of as many times as fit into a moment."""
    least, began = float("inf"), time.perf_counter()
    while True:
        started = time.perf_counter()
        found = call(argument)
        ended = time.perf_counter()
        least = min(least, ended - started)
        if ended - began >= TIMED_SECONDS:
            return found, least
