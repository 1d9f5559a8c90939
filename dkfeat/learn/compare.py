"""Comparison of feature maps: accuracy against the number of components, cost, and a recommendation."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import wraps
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, ParamSpec

import numpy as np
from scipy.sparse import csr_matrix, vstack
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import normalize
from sklearn.svm import SVC

from dkfeat.config.train import CLASS_LOSSES, DEFAULT_C, Liblinear, as_grid, check_fraction
from dkfeat.deprecation import moved_parameters
from dkfeat.engine.dataset.dataset import dataset_reader
from dkfeat.engine.progress import NotebookLine, Progress
from dkfeat.engine.scan import scan
from dkfeat.errors import ConfigError, InputError
from dkfeat.kernels import named_kernel
from dkfeat.learn.checks import check_fits, check_several_classes
from dkfeat.learn.comparison import FILES, Comparison, LeftOut, Result
from dkfeat.learn.estimators import KernelMachine, check_gram_fits
from dkfeat.learn.liblinear import LinearFit, fit_bytes, fit_c, keep_classes, scaled_rows, split_held_out, unit_scale
from dkfeat.learn.model import paired_difference
from dkfeat.maps.darts import DartFeatures
from dkfeat.maps.fourier import FourierFeatures
from dkfeat.maps.gcws import GCWSFeatures
from dkfeat.maps.nystroem import NystroemFeatures
from dkfeat.sources.formats import as_source
from dkfeat.store.outputs import check_folder
from dkfeat.validation import check_choice, check_integer, check_real

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkfeat.maps import FeatureMap
    from dkfeat.sources.base import Source


P = ParamSpec("P")
MAPS: Mapping[str, tuple[str, Callable[..., FeatureMap], Mapping[str, Any]]] = {
    "gcws": ("gmm", GCWSFeatures, {}),
    "dart": ("gmm", DartFeatures, {}),
    "nrff": ("rbf_cosine", FourierFeatures, {}),
    "rff": ("rbf_cosine", FourierFeatures, {"normalize": False}),
    "nystroem-gmm": ("gmm", NystroemFeatures, {"kernel": "gmm"}),
    "nystroem-rbf": ("rbf_cosine", NystroemFeatures, {"kernel": "rbf_cosine"}),
}
"""Maps by name: kernel, class, and parameters beside number of components, seed and gamma."""
DEFAULT_MAPS = ("gcws", "dart", "nrff", "nystroem-gmm", "nystroem-rbf")
DEFAULT_COMPONENTS = (32, 64, 128, 256, 512, 1024)
DEFAULT_GAMMA = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
BASELINES = ("linear", "exact", "exact-if-small")
GAMMA_COMPONENTS = 128
"""Maximum number of components with which gamma is chosen; the chosen gamma is used for all numbers of components."""
EXACT_ROWS = 3000
"""Maximum number of training rows for "exact-if-small"."""
EXACT_SHARE = 0.5
"""Share of the time that may be used when such machines begin."""
TESTED_BYTES = 256 << 20
"""Features of test rows held at a time, in bytes."""
TIMED_SECONDS = 0.05
"""Rows are mapped repeatedly until this much time has passed; the shortest time counts."""
HELD_OUT_ROWS = 2000
"""Number of held-out rows up to which further parts of the rows are held out in turn, for a standard error of the
difference of two maps below about half a point."""
MOST_PARTS = 12
"""Maximum number of parts that are held out in turn, each for a further fit; tenths of uneven size may take as many."""


def _from_old_keywords(arguments: dict[str, Any], old: dict[str, Any]) -> None:
    """Translate keywords of version 0.2."""
    new_names = dict.fromkeys(old, "baselines") | {"k": "n_components", "test_fraction": "test"}
    for name in old:
        if new_names[name] in arguments:
            raise TypeError(f"{new_names[name]} and its former name {name} are both given")
    if "k" in old:
        arguments["n_components"] = old["k"]
    if "test_fraction" in old:
        arguments["test"] = old["test_fraction"]
    if {"linear", "exact"} & old.keys():
        of_exact = {"auto": ["exact-if-small"], True: ["exact"], False: []}[old.get("exact", "auto")]
        arguments["baselines"] = ["linear"] * bool(old.get("linear", True)) + of_exact


OLD_KEYWORDS: Mapping[str, str] = {
    "k": "n_components",
    "test_fraction": "test=0.25",
    "linear": 'baselines=["linear", ...]',
    "exact": 'baselines=["exact", ...]',
}


def _saves(function: Callable[P, Comparison]) -> Callable[P, Comparison]:
    """Let `compare` accept `out` and `overwrite` of version 0.2, with a warning, and None for the default `test`."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> Comparison:
        if kwargs.get("test", True) is None:
            del kwargs["test"]
        out: Any = kwargs.pop("out", None)
        overwrite = bool(kwargs.pop("overwrite", False))
        if out is None:
            return function(*args, **kwargs)
        text = "compare: out is deprecated and will be removed in the next minor version"
        warnings.warn(f"{text}; use comparison.save(folder, overwrite=...)", DeprecationWarning, stacklevel=2)
        read: list[Any] = [*args, kwargs.get("source"), kwargs.get("test")]
        inputs = [
            pattern for each in read if not isinstance(each, float | None) for pattern in as_source(each).patterns
        ]
        check_folder(out, FILES, inputs=inputs, overwrite=overwrite)
        comparison = function(*args, **kwargs)
        comparison.save(out, overwrite=overwrite)
        return comparison

    return call


@_saves
@moved_parameters(_from_old_keywords, OLD_KEYWORDS, stacklevel=3)
def compare(
    source: Source | str | Sequence[str],
    *,
    test: Source | str | Sequence[str] | float = 0.25,
    maps: str | Sequence[str] = DEFAULT_MAPS,
    n_components: int | Sequence[int] = DEFAULT_COMPONENTS,
    gamma: float | Sequence[float] = DEFAULT_GAMMA,
    solver: Literal["liblinear"] | Liblinear = "liblinear",
    baselines: str | Sequence[str] = ("linear", "exact-if-small"),
    minutes: float = 2.0,
    random_state: int = 0,
    progress: bool | Callable[[Result], object] = True,
) -> Comparison:
    """Train a linear model on the features of several maps and sizes, and recommend one.

    A part of the training rows, drawn by the seed, is held out to choose C, gamma and the recommendation. If it has
    fewer than 2,000 rows, further parts are held out in turn for the recommendation. The test rows influence no choice;
    they only measure the models, each fitted to all training rows with its C and gamma.

    The cheapest map is recommended, by bytes and then by time per row, whose held-out accuracy is within one standard
    error of the best; the difference is taken on the same rows.

    Sizes rise: all maps are fitted with the smallest `n_components` first, and no fit begins that would not end in
    `minutes`. C and gamma are tried in order until a value is worse than the best by more than two standard errors, or
    the time ends. All rows are held in memory. Nothing is written; ``comparison.save(folder)`` writes tables and plot.

    Parameters
    ----------
    source : LibsvmSource, ParquetSource, str or sequence of str
        Rows with one class each, without weights: a source, or the path, glob or URL of LIBSVM text.
    test : like `source`, or float, default=0.25
        Rows on which accuracy is measured, or the share of the rows of `source`, in (0, 1), drawn for it by the seed.
    maps : str or sequence of str
        Of "gcws", "dart", "nrff", "rff", "nystroem-gmm" and "nystroem-rbf", one or more. The RBF kernel is
        ``exp(-gamma (1 - cosine))``.
    n_components : int or sequence of int
        Numbers of components. For Nyström maps, numbers above the number of training rows are left out.
    gamma : float or sequence of float
        Gamma values of RBF kernels to choose from. Each map with such a kernel gets one, chosen on the held-out rows
        with the largest `n_components` up to 128.
    solver : "liblinear" or Liblinear, default="liblinear"
        Loss, values of C to choose from for each model, and the share of the training rows that is held out.
    baselines : str or sequence of str, default=("linear", "exact-if-small")
        "linear": also train a linear model on the raw rows, scaled to unit length. "exact": also fit exact kernel
        machines, after the maps; "exact-if-small": if there are at most 3,000 training rows, and half of the time is
        left. Empty for none.
    minutes : float, default=2.0
        Time for the maps, above 0, from the start of the call. At its end the search of C and gamma stops, with what
        is known, and results of such a search are marked. The linear model and the first map are fitted in any case,
        and a fit may take longer than expected. With ``float("inf")`` all maps are fitted with all sizes.
    random_state : int, default=0
        Seed of the maps and of the random parts of the rows, at least 0.
    progress : bool or callable, default=True
        True prints each result on standard error, or below the cell of a notebook. A callable receives each result.

    Returns
    -------
    comparison : Comparison
        Results, recommendation, tables and plot.

    Raises
    ------
    ConfigError
        If a setting is out of range, the source holds shards, or rows have lists of labels, have no labels, or have
        weights.
    InputError
        If there are no rows, or rows of only one class.
    PlanError
        If rows or features do not fit in memory.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from sklearn.datasets import dump_svmlight_file, load_iris
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "iris.svm"
    >>> dump_svmlight_file(*load_iris(return_X_y=True), str(path), zero_based=False)
    >>> comparison = compare(path, maps=["gcws"], n_components=[16, 64], baselines="linear", progress=False)
    >>> [(result.name, result.k, result.row_bytes) for result in comparison.results]
    [('linear', None, 16), ('gcws', 16, 16), ('gcws', 64, 64)]
    """
    names = [check_choice(name, "maps", tuple(MAPS)) for name in dict.fromkeys(_listed(maps))]
    sizes = sorted({check_integer(size, "n_components", low=1) for size in _listed(n_components)})
    extra = [check_choice(name, "baselines", BASELINES) for name in _listed(baselines)]
    if not names or not sizes:
        raise ConfigError(
            "a comparison needs at least one map and one number of components; name them in maps and n_components"
        )
    began, seconds = time.monotonic(), math.inf if minutes == math.inf else 60 * check_real(minutes, "minutes", above=0)
    ends = began + seconds
    test_fraction = check_fraction(test, "test") if isinstance(test, int | float) else None
    if isinstance(solver, str):
        check_choice(solver, "solver", ("liblinear",))
        solver = Liblinear()
    if not isinstance(solver, Liblinear):
        raise ConfigError(f"solver={solver!r:.100}, but it must be dkfeat.Liblinear(...) or 'liblinear'")
    settings = FitSettings(
        C=as_grid(solver.C, "C"),
        gamma=as_grid(gamma, "gamma"),
        gamma_components=max([size for size in sizes if size <= GAMMA_COMPONENTS], default=sizes[0]),
        loss=solver.loss,
        validation_fraction=solver.validation_fraction,
        test_fraction=test_fraction,
        seed=check_integer(random_state, "random_state", low=0, high=2**63),
    )
    fits = Fits(_source(source), None if test_fraction else _source(test), settings, ends)
    n_rows = len(fits.y)
    sizes_of = {name: [size for size in sizes if size <= n_rows or not name.startswith("nystroem")] for name in names}
    if not any(sizes_of.values()):
        raise ConfigError(
            f"n_components={sizes[0]:,} landmarks or more cannot be taken from {n_rows:,} training rows; give less"
        )
    report = _reporter(progress)
    others = [report(fits.linear())] if "linear" in extra else []
    results, left_out = _fit_maps(fits, sizes_of, ends, report)
    is_early = n_rows <= EXACT_ROWS and time.monotonic() < began + EXACT_SHARE * seconds
    if "exact" in extra or ("exact-if-small" in extra and is_early):
        kernels = dict.fromkeys(MAPS[name][0] for name in names)
        others += [report(fits.exact(kernel)) for kernel in kernels]
    return Comparison(
        results=(*others, *results),
        n_train=n_rows,
        n_validation=sum(int(part.sum()) for part in fits.parts),
        n_test=len(fits.y_test),
        settings=asdict(settings),
        left_out=left_out,
    )


def _fit_maps(
    fits: Fits, sizes_of: Mapping[str, Sequence[int]], ends: float, report: Callable[[Result], Result]
) -> tuple[list[Result], tuple[LeftOut, ...]]:
    """Fit all maps with rising numbers of components; at least one fit, and none that would end too late."""
    done: dict[str, list[Result]] = {name: [] for name in sizes_of}
    left_out: dict[str, list[int]] = {}
    gammas: dict[str, tuple[float | None, bool]] = {name: (None, False) for name in sizes_of if MAPS[name][0] == "gmm"}
    for k in sorted({*chain(*sizes_of.values())}):
        for name in (name for name, sizes in sizes_of.items() if k in sizes):
            is_first = not any(done.values())
            needed = sum(last.fit_seconds * k / (last.k or k) for last in done[name][-1:])
            if is_first or (name not in left_out and time.monotonic() + needed < ends):
                if name not in gammas:
                    gammas[name] = fits.best_gamma(name)
                gamma, is_cut_short = gammas[name]
                if is_first or not is_cut_short:
                    result = fits.mapped(name, k, gamma)
                    result = replace(result, is_cut_short=result.is_cut_short or is_cut_short)
                    done[name].append(report(result))
                    continue
            left_out.setdefault(name, []).append(k)
    return [*chain(*done.values())], tuple(LeftOut(name=name, k=tuple(sizes)) for name, sizes in left_out.items())


def _reporter(progress: bool | Callable[[Result], object]) -> Callable[[Result], Result]:
    """Return the function that reports a result and returns it."""
    lines, line = Progress(progress is True), NotebookLine()

    def report(result: Result) -> Result:
        if callable(progress):
            progress(result)
        lines.note(f"compare: {result.describe()}", line)
        return result

    return report


def _listed(given: Any) -> list[Any]:
    return list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]


def _source(given: Any) -> Source:
    source = as_source(given)
    for path in (source.urlpath,) if isinstance(source.urlpath, str) else source.urlpath:
        if dataset_reader(path, source.storage_options) is not None:
            raise ConfigError(
                f"{path} holds shards; a comparison makes features itself: give the rows they were made from"
            )
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
    return source


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
            # the training rows determine "auto"
            given.append(test.replaced(zero_based=scans[0].zero_based) if test.zero_based == "auto" else test)
            scans.append(scan(given[1], progress=False))
        width = max(each.n_features for each in scans)
        stored = sum(each.n_rows * width if each.nnz is None else each.nnz for each in scans)
        check_fits(3 * 12 * stored, "the rows of a comparison", "take fewer rows: all are held in memory")
        (X, y), *tested = (_read(each, found, width) for each, found in zip(given, scans, strict=True))
        if not len(y):
            raise InputError("there are no training rows; give a source with rows")
        classes = np.unique(y)
        check_several_classes(classes, len(y))
        if len(classes) > max(2, len(y) // 2):
            raise InputError(
                f"the labels of {len(y):,} rows take {len(classes):,} values; "
                "a comparison needs classes, not quantities"
            )
        if not tested:  # with another seed than that which draws the rows on which C is chosen
            held = split_held_out(y, settings.test_fraction or 0, settings.seed + 1)
            tested, X, y = [(X[held], y[held])], X[~held], y[~held]
        self.X, self.y, (self.X_test, self.y_test) = X, y, tested[0]
        if not len(self.y_test):
            raise InputError("there are no test rows; give a source with rows")
        self.parts = held_out_parts(y, settings)

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
        check_gram_fits(len(self.y), n_copies=2)
        began = time.perf_counter()
        classes, y = np.unique(self.y, return_inverse=True)  # scikit-learn refuses classes such as 0.5
        folds = [(np.flatnonzero(~self.parts[0]), np.flatnonzero(self.parts[0]))]
        tried: list[tuple[float, dict[str, float], float]] = []
        for params in [{"gamma": gamma} for gamma in self.settings.gamma] if kernel == "rbf_cosine" else [{}]:
            search = GridSearchCV(SVC(kernel="precomputed"), {"C": self.settings.C}, cv=folds, refit=False)
            search.fit(named_kernel(kernel, params)(self.X), y)
            tried.append((search.best_score_, params, search.best_params_["C"]))
        validation_accuracy, params, C = max(tried, key=lambda each: each[0])
        machine = KernelMachine(kernel, params, C).fit(self.X, y)
        seconds = time.perf_counter() - began
        return Result(
            name=f"exact {kernel}",
            accuracy=float(np.mean(classes[machine.predict(self.X_test)] == self.y_test)),
            validation_accuracy=float(validation_accuracy),
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
        hits, seconds = 0, 0.0
        for start in range(0, len(self.y_test), step):
            features, spent = _call_timed(feature_map.transform, self.X_test[start : start + step])
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
        if gamma is not None:
            of_kernel = {"gamma": gamma}
            options = {**options, **(of_kernel if kind is FourierFeatures else {"kernel_params": of_kernel})}
        feature_map = kind(n_components=k, random_state=self.settings.seed, **options).fit(self.X)
        sparse, width = feature_map.layout == "codes", feature_map.n_features_out
        stored = len(self.y) * (k if sparse else width)
        self._check_memory(width, stored, f"LIBLINEAR on {name} of {k:,} components", sparse=sparse)
        return feature_map, scaled_rows(feature_map.transform(self.X), unit_scale(feature_map))

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


def linear_accuracy(source: Source, test: Source) -> float:
    """Test accuracy of a linear model on the raw rows of a source, scaled to unit length, with the best of five C."""
    return Fits(source, test, FitSettings()).linear().accuracy


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


def _read(source: Source, found: Any, width: int) -> tuple[csr_matrix, NDArray[Any]]:
    resolved = source.resolve(found).replaced(n_features=width)
    blocks = [piece.block for split in resolved.splits() for piece in resolved.read(split, checksum=False)]
    if not blocks:
        return csr_matrix((0, width), dtype=np.float32), np.empty(0)
    return csr_matrix(vstack([block.X for block in blocks])), np.concatenate([block.y for block in blocks])


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
