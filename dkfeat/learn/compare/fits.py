"""Fits of a comparison: rows read once, and the models that are fitted to them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.preprocessing import normalize
from sklearn.svm import SVC

from dkfeat.blocks import take_rows
from dkfeat.config.train import CLASS_LOSSES, DEFAULT_C
from dkfeat.encoders.scale import ColumnScale
from dkfeat.engine.scan import column_shares, scale_warning, scan
from dkfeat.errors import InputError
from dkfeat.kernels import named_kernel
from dkfeat.learn.checks import check_fits, check_several_classes
from dkfeat.learn.compare.comparison import Result
from dkfeat.learn.liblinear import LinearFit, fit_bytes, fit_c, keep_classes, scaled_rows, split_held_out, unit_scale
from dkfeat.learn.scores import paired_difference
from dkfeat.maps.darts import DartFeatures
from dkfeat.maps.fourier import FourierFeatures
from dkfeat.maps.gcws import GCWSFeatures
from dkfeat.maps.minhash import MinHashFeatures
from dkfeat.maps.nystroem import NystroemFeatures
from dkfeat.messages import logger_of
from dkfeat.sources.pieces import join_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkfeat.maps import FeatureMap
    from dkfeat.sources.base import Source

logger = logger_of(__name__)

MAPS: Mapping[str, tuple[str, Callable[..., FeatureMap], Mapping[str, Any]]] = {
    "gcws": ("gmm", GCWSFeatures, {}),
    "gcws-rank": ("gmm-rank", GCWSFeatures, {}),
    "dart": ("gmm", DartFeatures, {}),
    "minhash": ("gmm", MinHashFeatures, {}),
    "nrff": ("rbf_cosine", FourierFeatures, {}),
    "rff": ("rbf_cosine", FourierFeatures, {"normalize": False}),
    "nystroem-gmm": ("gmm", NystroemFeatures, {"kernel": "gmm"}),
    "nystroem-rbf": ("rbf_cosine", NystroemFeatures, {"kernel": "rbf_cosine"}),
}
"""Maps by name: kernel, class, and parameters beside number of components, seed and gamma."""
RANK = "-rank"
"""End of the names of maps and kernels of rows whose columns are scaled by their ranks."""
TESTED_BYTES = 256 << 20
"""Features or kernel values of test rows held at a time, in bytes."""
TIMED_SECONDS = 0.05
"""Rows are mapped repeatedly until this much time has passed; the shortest time counts."""
HELD_OUT_ROWS = 2000
"""Number of held-out rows up to which further parts of the rows are held out in turn, for a standard error of the
difference of two maps below about half a point."""
MOST_PARTS = 12
"""Maximum number of parts that are held out in turn, each for a further fit; tenths of uneven size may take as many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitSettings:
    """Settings that, together with the rows, determine all results of a comparison except times."""

    C: tuple[float, ...] = DEFAULT_C
    gamma: tuple[float, ...] = ()
    gamma_components: int = 1
    """Number of components with which gamma is chosen."""
    loss: str = CLASS_LOSSES[0]
    validation_fraction: float = 0.1
    test_fraction: float | None = None
    seed: int = 0


class Fits:
    """Rows of a comparison, read once into memory, and the models that are fitted to them.

    Parameters
    ----------
    source : Source
    test : Source or None
        Test rows; None draws a share of the rows of `source` at random.
    settings : FitSettings
    ends : float
        Time, as `time.monotonic` counts, at which no further C or gamma is tried.

    Raises
    ------
    InputError
        If there are no rows, rows of only one class, or more different labels than half the number of rows.
    PlanError
        If the rows do not fit in memory.
    SourceNotFoundError, ParseError
        If a source cannot be read.
    """

    def __init__(self, source: Source, test: Source | None, settings: FitSettings, ends: float = math.inf) -> None:
        self.settings, self._ends = settings, ends
        given, scans = [source], [scan(source, progress=False)]
        if test is not None:
            # the training rows determine "auto", and the words that are classes
            zero_based = scans[0].zero_based if test.zero_based == "auto" else test.zero_based
            given.append(test.replaced(zero_based=zero_based, classes=scans[0].classes))
            scans.append(scan(given[1], progress=False))
        width = max(each.n_features for each in scans)
        a_row = 2 * width >> 32 if source.is_table else width
        stored = sum(each.n_rows * a_row if each.nnz is None else each.nnz for each in scans)
        check_fits(3 * 12 * stored, "the rows of a comparison", "take fewer rows: all are held in memory")
        (X, y), *tested = (_read(each, found, width) for each, found in zip(given, scans, strict=True))
        if not len(y):
            raise InputError("there are no training rows; give a source with rows")
        classes = np.unique(y)
        check_several_classes(classes.tolist(), len(y))
        if len(classes) > max(2, len(y) // 2):
            raise InputError(
                f"the labels of {len(y):,} rows take {len(classes):,} values; "
                "a comparison needs classes, not quantities"
            )
        if not tested:  # with another seed than that which draws the rows on which C is chosen
            held = split_held_out(y, settings.test_fraction or 0, settings.seed + 1)
            tested, X, y = [(take_rows(X, held), y[held])], take_rows(X, ~held), y[~held]
        self.X, self.y, (self.X_test, self.y_test) = X, y, tested[0]
        if source.encoder is not None:
            encoder = clone(source.encoder).fit(self.X)
            self.X, self.X_test = _renumbered(encoder.transform(self.X), encoder.transform(self.X_test))
        elif warning := scale_warning(column_shares(self.X), source.resolve(scans[0]).to_mapping()):
            logger.warning("%s", warning)
        if not len(self.y_test):
            raise InputError("there are no test rows; give a source with rows")
        self.parts = held_out_parts(y, settings)

    @cached_property
    def _ranked(self) -> list[csr_matrix]:
        scale = ColumnScale("rank", random_state=self.settings.seed).fit(self.X)
        return [scale.transform(self.X), scale.transform(self.X_test)]

    def _rows(self, name: str) -> list[csr_matrix]:
        """Return the training and the test rows of a map or a kernel."""
        return self._ranked if name.endswith(RANK) else [self.X, self.X_test]

    def linear(self) -> Result:
        """Fit a linear model to the raw rows, scaled to unit length."""
        n_rows, width = self.X.shape
        self._check_memory(width, self.X.nnz, "LIBLINEAR on the raw rows", sparse=True)
        fitted, chosen = self._fit(normalize(self.X.astype(np.float64)))
        row_bytes = min(8 * self.X.nnz / n_rows, 4 * width)  # 4 bytes each for column and value, or all values dense
        accuracy = fitted.score(normalize(self.X_test.astype(np.float64)), self.y_test)
        return Result(name="linear", accuracy=accuracy, row_bytes=round(row_bytes), **chosen)

    def exact(self, kernel: str) -> Result:
        """Fit an exact kernel machine with the gamma and C that are best on the first part of held-out rows."""
        advice = "a kernel machine is for small sets: take fewer rows, or featurize and train a linear model"
        check_fits(16 * len(self.y) ** 2, "a kernel machine", advice)
        began = time.perf_counter()
        X, X_test = self._rows(kernel)
        function = kernel.removesuffix(RANK)
        classes, y = np.unique(self.y, return_inverse=True)  # scikit-learn refuses classes such as 0.5

        def is_right(gram: NDArray[np.float64], C: float, held: NDArray[np.bool_]) -> NDArray[np.bool_]:
            machine = SVC(kernel="precomputed", C=C).fit(gram[np.ix_(~held, ~held)], y[~held])
            return np.asarray(machine.predict(gram[np.ix_(held, ~held)]) == y[held])

        tried: list[tuple[float, dict[str, float], float]] = []
        for params in [{"gamma": gamma} for gamma in self.settings.gamma] if kernel == "rbf_cosine" else [{}]:
            gram = named_kernel(function, params)(X)
            tried += [(is_right(gram, C, self.parts[0]).mean(), params, C) for C in self.settings.C]
        _, params, C = max(tried, key=lambda each: each[0])
        values = named_kernel(function, params)
        gram = values(X)
        right = np.concatenate([is_right(gram, C, held) for held in self.parts])
        machine = SVC(kernel="precomputed", C=C).fit(gram, y)
        seconds = time.perf_counter() - began
        hits, step = 0, max(1, TESTED_BYTES // (8 * len(self.y)))
        for start in range(0, len(self.y_test), step):
            labels = classes[machine.predict(values(X_test[start : start + step], X))]
            hits += int(np.count_nonzero(labels == self.y_test[start : start + step]))
        return Result(
            name=f"exact {kernel}",
            accuracy=hits / len(self.y_test),
            validation_accuracy=float(right.mean()),
            wrong=tuple(np.flatnonzero(~right).tolist()),
            C=C,
            gamma=params.get("gamma"),
            fit_seconds=seconds,
        )

    def mapped(self, name: str, k: int, gamma: float | None) -> Result:
        """Fit a linear model to the features of a map, and measure the time to map one of the test rows."""
        feature_map, X = self._features(name, k, gamma)  # this also compiles loops and makes tables
        fitted, chosen = self._fit(X)
        del X
        stored = feature_map.n_components if feature_map.layout == "codes" else feature_map.n_features_out
        step = max(1, TESTED_BYTES // (16 * stored))
        hits, seconds, X_test = 0, 0.0, self._rows(name)[1]
        for start in range(0, len(self.y_test), step):
            features, spent = _call_timed(feature_map.transform, X_test[start : start + step])
            labels = fitted.predict(scaled_rows(features, unit_scale(feature_map)))
            hits += int(np.count_nonzero(labels == self.y_test[start : start + step]))
            seconds += spent
        return Result(
            name=name,
            k=k,
            accuracy=hits / len(self.y_test),
            gamma=gamma,
            row_bytes=feature_map.encoded_row_bytes,
            row_microseconds=1e6 * (seconds / len(self.y_test)),
            **chosen,
        )

    def best_gamma(self, name: str) -> tuple[float, bool]:
        """Choose gamma of an RBF map by held-out accuracy, each at its best C; ties go to the smallest gamma.

        Values are tried from the middle upwards and then downwards. Also return whether the time had ended before.
        """
        grid, middle = self.settings.gamma, len(self.settings.gamma) // 2
        k = min(self.settings.gamma_components, len(self.y))
        if len(grid) == 1:
            return grid[0], False
        directions = [grid[middle:], grid[:middle][::-1]]
        gamma, _, is_cut_short = self._search(
            directions, lambda gamma: self._best_c(self._features(name, k, gamma)[1])[1]
        )
        return gamma, is_cut_short

    def _search(
        self, directions: Sequence[Sequence[float]], right: Callable[[float], NDArray[np.bool_]]
    ) -> tuple[float, NDArray[np.bool_], bool]:
        """Search the value with which most held-out rows are right, the smallest of equal ones.

        In each direction, values are tried in order until one is worse than the best by more than two standard errors.
        At the end of the time the search stops.

        Returns
        -------
        value : float
        right : ndarray of bool
            Which of the held-out rows are right with it.
        is_cut_short : bool
            Whether the time ended before the search.
        """
        tried: dict[float, NDArray[np.bool_]] = {}
        best = directions[0][0]
        for values in directions:
            for value in values:
                if tried and time.monotonic() >= self._ends:
                    return best, tried[best], True
                tried[value] = right(value)
                best = max(sorted(tried), key=lambda each: tried[each].mean())
                loss, error = paired_difference(tried[best], tried[value])
                if loss > 2 * error:
                    break
        return best, tried[best], False

    def _features(self, name: str, k: int, gamma: float | None) -> tuple[FeatureMap, Any]:
        """Return the map and the features of the training rows, if memory suffices to fit a model to them."""
        _, kind, options = MAPS[name]
        X, _ = self._rows(name)
        if gamma is not None:
            of_kernel = {"gamma": gamma}
            options = {**options, **(of_kernel if kind is FourierFeatures else {"kernel_params": of_kernel})}
        feature_map = kind(n_components=k, random_state=self.settings.seed, **options).fit(X)
        sparse, width = feature_map.layout == "codes", feature_map.n_features_out
        stored = len(self.y) * (k if sparse else width)
        self._check_memory(width, stored, f"LIBLINEAR on {name} of {k:,} components", sparse=sparse)
        return feature_map, scaled_rows(feature_map.transform(X), unit_scale(feature_map))

    def _check_memory(self, width: int, stored: int, what: str, *, sparse: bool) -> None:
        needed = fit_bytes((len(self.y), width), stored, len(np.unique(self.y)), sparse=sparse, grid=True)
        check_fits(needed, what, "compare on fewer rows or components")

    def _right(self, X: Any, held: NDArray[np.bool_]) -> Callable[[float], NDArray[np.bool_]]:
        """Return the function that fits the other rows with a C, and tells which of the held-out rows are right."""
        X_train, y_train, X_held, y_held = X[~held], self.y[~held], X[held], self.y[held]
        options: dict[str, Any] = {"loss": self.settings.loss, "seed": self.settings.seed}
        return lambda C: fit_c(X_train, y_train, C, **options).predict(X_held) == y_held

    def _best_c(self, X: Any) -> tuple[float, NDArray[np.bool_], bool]:
        """Search C on the first part of held-out rows, see `_search`."""
        return self._search([self.settings.C], self._right(X, self.parts[0]))

    def _fit(self, X: Any) -> tuple[LinearFit, dict[str, Any]]:
        """Choose C and fit all rows with it; also return C, held-out accuracy and time as fields of a `Result`."""
        began = time.perf_counter()
        C, right, is_cut_short = self._best_c(X)
        right = np.concatenate([right, *(self._right(X, held)(C) for held in self.parts[1:])])
        fitted = fit_c(X, self.y, C, loss=self.settings.loss, seed=self.settings.seed)
        return fitted, {
            "C": C,
            "validation_accuracy": float(right.mean()),
            "wrong": tuple(np.flatnonzero(~right).tolist()),
            "fit_seconds": time.perf_counter() - began,
            "is_cut_short": is_cut_short,
        }


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


def _read(source: Source, found: Any, width: int) -> tuple[Any, NDArray[Any]]:
    resolved = source.resolve(found).replaced(n_features=width)
    blocks = [piece.block for split in resolved.splits() for piece in resolved.read(split, checksum=False)]
    if not blocks:
        return csr_matrix((0, width), dtype=np.float32), np.empty(0)
    return join_rows([block.X for block in blocks]), np.concatenate([block.y for block in blocks])


def _renumbered(*parts: csr_matrix) -> list[csr_matrix]:
    """Give the columns that occur numbers from 0, since LIBLINEAR does not take 2^32 for each column of a table."""
    columns = np.unique(np.concatenate([part.indices for part in parts]))
    shape = max(1, len(columns))
    return [
        csr_matrix((part.data, np.searchsorted(columns, part.indices), part.indptr), (part.shape[0], shape))
        for part in parts
    ]


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
