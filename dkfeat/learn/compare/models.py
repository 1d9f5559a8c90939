"""Rows of a comparison, read once into memory, and the models that are fitted to them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_matrix, vstack
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import normalize
from sklearn.svm import SVC

from dkfeat.config.train import CLASS_LOSSES, DEFAULT_C
from dkfeat.engine.scan import scan
from dkfeat.errors import ConfigError, InputError
from dkfeat.kernels import named_kernel
from dkfeat.learn.checks import check_fits, check_several_classes
from dkfeat.learn.compare.result import Result
from dkfeat.learn.kernel_machine import KernelMachine, check_gram_fits
from dkfeat.learn.liblinear import (
    LinearFit,
    fit_bytes,
    fit_c,
    keep_classes,
    scaled_rows,
    split_held_out,
    unit_scale,
)
from dkfeat.learn.score import paired_difference
from dkfeat.maps.darts import DartFeatures
from dkfeat.maps.fourier import FourierFeatures
from dkfeat.maps.gcws import GCWSFeatures
from dkfeat.maps.nystroem import NystroemFeatures

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkfeat.maps import FeatureMap
    from dkfeat.sources.base import Source


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ComparedRows:
    """Training and test rows."""

    X: csr_matrix
    """Training rows, shape (n_samples, n_features)."""
    y: NDArray[Any]
    X_test: csr_matrix
    """Test rows, of the same width."""
    y_test: NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class FitSettings:
    """Settings that, together with the rows, determine all results of a comparison except times."""

    C: tuple[float, ...]
    gamma: tuple[float, ...]
    gamma_components: int
    """Number of components with which gamma is chosen."""
    loss: str
    validation_fraction: float
    test_fraction: float | None
    seed: int


def load_rows(source: Source, test: Source | None, settings: FitSettings) -> ComparedRows:
    """Read all rows; if `test` is None, a share of them is drawn at random as test rows.

    Raises
    ------
    InputError
        If there are no rows, rows of only one class, or more different labels than half the number of rows.
    ConfigError
        For lists of labels, missing labels, row weights, or a source that sets bad rows aside.
    PlanError
        If the rows do not fit in memory.
    SourceNotFoundError, ParseError
        If a source cannot be read.
    """
    given = [source] if test is None else [source, test]
    for each in given:
        _check_source(each)
    scans = [scan(source, progress=False)]
    if test is not None:
        if test.zero_based == "auto":  # the training rows determine it
            test = given[1] = test.replaced(zero_based=scans[0].zero_based)
        scans.append(scan(test, progress=False))
    width = max(each.n_features for each in scans)
    stored = sum(each.n_rows * width if each.nnz is None else each.nnz for each in scans)
    check_fits(3 * 12 * stored, "the rows of a comparison", "take fewer rows: all are held in memory")
    parts = [_read(each, found, width) for each, found in zip(given, scans, strict=True)]
    X, y = parts[0]
    _check_labels(y)
    if test is None:
        held = split_held_out(
            y, settings.test_fraction or 0, settings.seed + 1
        )  # not the seed that draws the rows on which C is chosen
        X, y, X_test, y_test = X[~held], y[~held], X[held], y[held]
    else:
        X_test, y_test = parts[1]
    if not len(y_test):
        raise InputError("there are no test rows; give a source with rows")
    return ComparedRows(X=X, y=y, X_test=X_test, y_test=y_test)


def _check_labels(y: NDArray[Any]) -> None:
    if not len(y):
        raise InputError("there are no training rows; give a source with rows")
    classes = np.unique(y)
    check_several_classes(classes, len(y))
    if len(classes) > max(2, len(y) // 2):
        raise InputError(
            f"the labels of {len(y):,} rows take {len(classes):,} values; a comparison needs classes, not quantities"
        )


def _check_source(source: Source) -> None:
    if source.multilabel is True:
        raise ConfigError(
            "a comparison takes rows of one class each, not lists of labels; compare on one label at a time"
        )
    if not source.has_labels:
        raise ConfigError("the rows have no labels; name the label column, or give labelled rows")
    if source.has_weights:
        raise ConfigError("a comparison counts all rows alike; leave out the column of weights")
    if source.on_bad_row != "raise":
        raise ConfigError(
            "a comparison never drops rows silently, so on_bad_row must be 'raise'; featurize sets bad rows aside"
        )


def _read(source: Source, found: Any, width: int) -> tuple[csr_matrix, NDArray[Any]]:
    resolved = source.resolve(found).replaced(n_features=width)
    blocks = [piece.block for split in resolved.splits() for piece in resolved.read(split, checksum=False)]
    if not blocks:
        return csr_matrix((0, width), dtype=np.float32), np.empty(0)
    return csr_matrix(vstack([block.X for block in blocks])), np.concatenate([block.y for block in blocks])


KERNELS: Mapping[str, str] = {
    "gcws": "gmm",
    "dart": "gmm",
    "nrff": "rbf_cosine",
    "rff": "rbf_cosine",
    "nystroem-gmm": "gmm",
    "nystroem-rbf": "rbf_cosine",
}
"""Kernel of each map."""
MAPS: Mapping[str, Callable[[int, Any, int], FeatureMap]] = {
    "gcws": lambda k, _, seed: GCWSFeatures(n_components=k, random_state=seed),
    "dart": lambda k, _, seed: DartFeatures(n_components=k, random_state=seed),
    "nrff": lambda k, gamma, seed: FourierFeatures(n_components=k, gamma=gamma, random_state=seed),
    "rff": lambda k, gamma, seed: FourierFeatures(n_components=k, gamma=gamma, normalize=False, random_state=seed),
    "nystroem-gmm": lambda k, _, seed: NystroemFeatures(n_components=k, kernel="gmm", random_state=seed),
    "nystroem-rbf": lambda k, gamma, seed: NystroemFeatures(
        n_components=k, kernel="rbf_cosine", kernel_params={"gamma": gamma}, random_state=seed
    ),
}
"""Constructors of the maps by name, from number of components, gamma and seed."""

TESTED_BYTES = 256 << 20
"""Features of test rows held at a time, in bytes."""
TIMED_SECONDS = 0.05
"""Rows are mapped repeatedly until this much time has passed; the shortest time counts."""


HELD_OUT_ROWS = 2000
"""Number of held-out rows up to which further parts of the rows are held out in turn, for a standard error of the
difference of two maps below about half a point."""
MOST_PARTS = 12
"""Maximum number of parts that are held out in turn, each for a further fit; tenths of uneven size may take as many."""


def held_out_parts(y: NDArray[Any], settings: FitSettings) -> list[NDArray[np.bool_]]:
    """Draw disjoint parts of the training rows that are held out in turn; C and gamma are chosen on the first one.

    Of small data sets as many parts are drawn, `MOST_PARTS` at most, as give `HELD_OUT_ROWS` rows or, if there are
    fewer, all rows: then it is a cross-validation. A row stays in training if it would be the only one of its class to
    be held out.
    """
    first = split_held_out(y, settings.validation_fraction, settings.seed)
    others = np.random.default_rng(settings.seed).permutation(np.flatnonzero(~first))
    size = int(first.sum())
    parts = [first]
    for start in range(0, min(len(others), HELD_OUT_ROWS - size), size)[: MOST_PARTS - 1]:
        part = np.zeros(len(y), np.bool_)
        part[others[start : start + size]] = True
        parts.append(keep_classes(part, y))
    return parts


def fit_linear(rows: ComparedRows, settings: FitSettings, ends: float) -> Result:
    """Fit a linear model to the raw rows, scaled to unit length; `ends` as for `fit_mapped`."""
    n_rows, width = rows.X.shape
    _check_fit((n_rows, width), rows.X.nnz, rows.y, "LIBLINEAR on the raw rows", sparse=True)
    fitted, chosen = _fit(normalize(rows.X.astype(np.float64)), rows.y, settings, ends)
    row_bytes = min(8 * rows.X.nnz / n_rows, 4 * width)  # 4 bytes each for column and value, or all values dense
    accuracy = fitted.score(normalize(rows.X_test.astype(np.float64)), rows.y_test)
    return Result(name="linear", accuracy=accuracy, row_bytes=round(row_bytes), **chosen)


def linear_accuracy(source: Source, test: Source) -> float:
    """Test accuracy of a linear model on the raw rows of a source, scaled to unit length, with the best of five C."""
    settings = FitSettings(
        C=DEFAULT_C,
        gamma=(),
        gamma_components=1,
        loss=CLASS_LOSSES[0],
        validation_fraction=0.1,
        test_fraction=None,
        seed=0,
    )
    return fit_linear(load_rows(source, test, settings), settings, math.inf).accuracy


def fit_exact(rows: ComparedRows, kernel: str, settings: FitSettings) -> Result:
    """Fit an exact kernel machine with the gamma and C that are best on the held-out rows."""
    check_gram_fits(len(rows.y), n_copies=2)
    began = time.perf_counter()
    classes, y = np.unique(rows.y, return_inverse=True)  # scikit-learn refuses classes such as 0.5
    held = split_held_out(y, settings.validation_fraction, settings.seed)
    folds = [(np.flatnonzero(~held), np.flatnonzero(held))]
    tried: list[tuple[float, dict[str, float], float]] = []
    for params in [{"gamma": gamma} for gamma in settings.gamma] if kernel == "rbf_cosine" else [{}]:
        search = GridSearchCV(SVC(kernel="precomputed"), {"C": settings.C}, cv=folds, refit=False)
        search.fit(named_kernel(kernel, params)(rows.X), y)
        tried.append((search.best_score_, params, search.best_params_["C"]))
    validation_accuracy, params, C = max(tried, key=lambda each: each[0])
    machine = KernelMachine(kernel, params, C).fit(rows.X, y)
    seconds = time.perf_counter() - began
    return Result(
        name=f"exact {kernel}",
        accuracy=float(np.mean(classes[machine.predict(rows.X_test)] == rows.y_test)),
        validation_accuracy=float(validation_accuracy),
        C=C,
        gamma=params.get("gamma"),
        fit_seconds=seconds,
    )


def fit_mapped(
    rows: ComparedRows, name: str, k: int, gamma: float | None, settings: FitSettings, ends: float
) -> Result:
    """Fit a linear model to the features of a map.

    Parameters
    ----------
    ends : float
        Time, as `time.monotonic` counts, at which no further C is tried.
    """
    feature_map, X = _features(rows, name, k, gamma, settings)  # this also compiles loops and makes tables
    fitted, chosen = _fit(X, rows.y, settings, ends)
    del X
    accuracy, row_seconds = _score_and_time(fitted, feature_map, rows.X_test, rows.y_test)
    return Result(
        name=name,
        k=k,
        accuracy=accuracy,
        gamma=gamma,
        row_bytes=feature_map.encoded_row_bytes,
        row_microseconds=1e6 * row_seconds,
        **chosen,
    )


def choose_gamma(rows: ComparedRows, name: str, settings: FitSettings, ends: float) -> tuple[float, bool]:
    """Choose gamma of an RBF map by held-out accuracy, each at its best C; ties go to the smallest gamma.

    Values are tried from the middle upwards and then downwards. Also return whether the time had ended before.
    """
    grid, middle = settings.gamma, len(settings.gamma) // 2
    k = min(settings.gamma_components, rows.X.shape[0])

    def right(gamma: float) -> NDArray[np.bool_]:
        return _best_c(_features(rows, name, k, gamma, settings)[1], rows.y, settings, ends)[1]

    if len(grid) == 1:
        return grid[0], False
    gamma, _, is_cut_short = _search([grid[middle:], grid[:middle][::-1]], right, ends)
    return gamma, is_cut_short


def _search(
    directions: Sequence[Sequence[float]], right: Callable[[float], NDArray[np.bool_]], ends: float
) -> tuple[float, NDArray[np.bool_], bool]:
    """Search the value with which most held-out rows are right, the smallest of equal ones.

    In each direction, values are tried in order until one is worse than the best by more than two standard errors. At
    the time `ends` the search stops.

    Returns
    -------
    value : float
    right : ndarray of bool
        For each held-out row, whether it is right with the value.
    is_cut_short : bool
        Whether the time ended before the search.
    """
    tried: dict[float, NDArray[np.bool_]] = {}
    best = directions[0][0]
    for values in directions:
        for value in values:
            if tried and time.monotonic() >= ends:
                return best, tried[best], True
            tried[value] = right(value)
            best = max(sorted(tried), key=lambda each: tried[each].mean())
            loss, error = paired_difference(tried[best], tried[value])
            if loss > 2 * error:
                break
    return best, tried[best], False


def _features(
    rows: ComparedRows, name: str, k: int, gamma: float | None, settings: FitSettings
) -> tuple[FeatureMap, Any]:
    """Return the map and the features of the training rows, if memory suffices to fit a model to them."""
    feature_map = MAPS[name](k, gamma, settings.seed).fit(rows.X)
    shape = rows.X.shape[0], feature_map.n_features_out
    sparse = feature_map.layout == "codes"
    stored = shape[0] * (k if sparse else shape[1])
    _check_fit(shape, stored, rows.y, f"LIBLINEAR on {name} of {k:,} components", sparse=sparse)
    return feature_map, scaled_rows(feature_map.transform(rows.X), unit_scale(feature_map))


def _check_fit(shape: tuple[int, int], stored: int, y: NDArray[Any], what: str, *, sparse: bool) -> None:
    needed = fit_bytes(shape, stored, len(np.unique(y)), sparse=sparse, grid=True)
    check_fits(needed, what, "compare on fewer rows or components")


def _best_c(X: Any, y: NDArray[Any], settings: FitSettings, ends: float) -> tuple[float, NDArray[np.bool_], bool]:
    """Search C on the held-out rows, see `_search`."""
    held = split_held_out(y, settings.validation_fraction, settings.seed)
    X_train, X_held = X[~held], X[held]

    def right(C: float) -> NDArray[np.bool_]:
        return fit_c(X_train, y[~held], C, loss=settings.loss, seed=settings.seed).predict(X_held) == y[held]

    return _search([settings.C], right, ends)


def _fit(X: Any, y: NDArray[Any], settings: FitSettings, ends: float) -> tuple[LinearFit, dict[str, Any]]:
    """Choose C and fit all rows with it; return also C, its held-out accuracy and the time as fields of a `Result`."""
    began = time.perf_counter()
    C, right, is_cut_short = _best_c(X, y, settings, ends)
    options: dict[str, Any] = {"loss": settings.loss, "seed": settings.seed}
    _, *others = held_out_parts(y, settings)
    found = [fit_c(X[~held], y[~held], C, **options).predict(X[held]) == y[held] for held in others]
    fitted = fit_c(X, y, C, **options)
    seconds = time.perf_counter() - began
    right = np.concatenate([right, *found])
    wrong = tuple(np.flatnonzero(~right).tolist())
    held_out = {"validation_accuracy": float(right.mean()), "wrong": wrong}
    return fitted, {"C": C, **held_out, "fit_seconds": seconds, "is_cut_short": is_cut_short}


def _score_and_time(fitted: LinearFit, feature_map: FeatureMap, X: Any, y: NDArray[Any]) -> tuple[float, float]:
    """Return the accuracy on test rows, and the seconds to map one of them."""
    stored = feature_map.n_components if feature_map.layout == "codes" else feature_map.n_features_out
    step = max(1, TESTED_BYTES // (16 * stored))
    hits, seconds = 0, 0.0
    for start in range(0, X.shape[0], step):
        features, spent = _call_timed(feature_map.transform, X[start : start + step])
        labels = fitted.predict(scaled_rows(features, unit_scale(feature_map)))
        hits += int(np.count_nonzero(labels == y[start : start + step]))
        seconds += spent
    return hits / len(y), seconds / len(y)


def _call_timed(call: Callable[[Any], Any], argument: Any) -> tuple[Any, float]:
    """Return the result of a call, and the shortest of its times in as many calls as fit into `TIMED_SECONDS`."""
    least, began = float("inf"), time.perf_counter()
    while True:
        started = time.perf_counter()
        result = call(argument)
        ended = time.perf_counter()
        least = min(least, ended - started)
        if ended - began >= TIMED_SECONDS:
            return result, least
