"""Comparison of feature maps: accuracy against the number of components, cost, and a recommendation."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from dkfeat.config.train import Liblinear, as_grid, check_fraction
from dkfeat.errors import ConfigError
from dkfeat.learn.compare.models import (
    KERNELS,
    MAPS,
    ComparedRows,
    FitSettings,
    choose_gamma,
    fit_exact,
    fit_linear,
    fit_mapped,
    held_out_parts,
    load_rows,
)
from dkfeat.learn.compare.race import race
from dkfeat.learn.compare.result import Comparison
from dkfeat.learn.compare.store import Result, ResultStore, check_result_folder
from dkfeat.validation import check_choice, check_integer, check_real

if TYPE_CHECKING:
    from os import PathLike

    from dkfeat.sources.base import Source


DEFAULT_MAPS = ("gcws", "dart", "nrff", "nystroem-gmm", "nystroem-rbf")
DEFAULT_K = (32, 64, 128, 256, 512, 1024)
DEFAULT_GAMMA = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
GAMMA_COMPONENTS = 128
"""Maximum number of components with which gamma is chosen; the chosen gamma is used for all numbers of components."""
EXACT_ROWS = 3000
"""Maximum number of training rows for exact kernel machines if `exact` is "auto"."""
EXACT_SHARE = 0.5
"""Share of the time that may be used when such machines begin."""


def compare(
    source: Source | str | Sequence[str],
    *,
    test: Source | str | Sequence[str] | None = None,
    maps: str | Sequence[str] = DEFAULT_MAPS,
    k: int | Sequence[int] = DEFAULT_K,
    gamma: float | Sequence[float] = DEFAULT_GAMMA,
    solver: Literal["liblinear"] | Liblinear = "liblinear",
    linear: bool = True,
    exact: Literal["auto"] | bool = "auto",
    minutes: float = 2.0,
    test_fraction: float = 0.25,
    random_state: int = 0,
    out: str | PathLike[str] | None = None,
    overwrite: bool = False,
    progress: bool | Callable[[Result], object] = True,
) -> Comparison:
    """Train a linear model on the features of several maps and sizes, and recommend one.

    A part of the training rows, drawn by the seed, is held out to choose C, gamma and the recommendation. If it has
    fewer than 2,000 rows, further parts are held out in turn for the recommendation. The test rows influence no choice;
    they only measure the models, each fitted to all training rows with its C and gamma.

    The cheapest map is recommended, by bytes and then by time per row, whose held-out accuracy is within one standard
    error of the best; the difference is taken on the same rows.

    The two smallest sizes of all maps are fitted first, and then the most promising map grows. Sizes that could not win
    are left out, and none begins that would not end in `minutes`. C and gamma are tried in order until a value is worse
    than the best by more than two standard errors, or the time ends.

    All rows are held in memory. If `out` is given, each result is written to ``results.jsonl`` as soon as it is
    computed, and at the end the table as text, JSON and CSV and, if matplotlib is installed, the plot. An interrupted
    comparison continues if it is called again with the same settings and files, with more or less time: what it finds
    there costs nothing.

    Parameters
    ----------
    source : LibsvmSource, ParquetSource, str or sequence of str
        Rows with one class each, without weights: a source, or the path, glob or URL of LIBSVM text.
    test : like `source`, optional
        Rows on which accuracy is measured. By default a part of the rows of `source`, drawn by the seed.
    maps : str or sequence of str
        Of "gcws", "dart", "nrff", "rff", "nystroem-gmm" and "nystroem-rbf", one or more. The RBF kernel is
        ``exp(-gamma (1 - cosine))``.
    k : int or sequence of int
        Numbers of components. For Nyström maps, numbers above the number of training rows are left out.
    gamma : float or sequence of float
        Gamma values of RBF kernels to choose from. Each map with such a kernel gets one, chosen on the held-out rows
        with the largest `k` up to 128.
    solver : "liblinear" or Liblinear, default="liblinear"
        Loss, values of C to choose from for each model, and the share of the training rows that is held out.
    linear : bool, default=True
        Also train a linear model on the raw rows, scaled to unit length.
    exact : "auto" or bool, default="auto"
        Also fit exact kernel machines, after the maps; "auto": if there are at most 3,000 training rows, and half of
        the time is left.
    minutes : float, default=2.0
        Time for the maps, above 0, from the start of the call. At its end the search of C and gamma stops, with what
        is known; results of such a search are marked, and are computed again if the comparison continues. The linear
        model and the first map are fitted in any case, and a fit may take longer than expected. With ``float("inf")``
        all maps are fitted with all sizes, as a figure of them needs.
    test_fraction : float, default=0.25
        Share of all rows used as test rows if `test` is not given, in (0, 1).
    random_state : int, default=0
        Seed of the maps and of the random parts of the rows, at least 0.
    out : str or path, optional
        Local folder for results, outside of data sets and models. By default nothing is written.
    overwrite : bool, default=False
        Replace also files in `out` that have the names of the table or the plot, but belong to no earlier comparison.
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
        weights; or if a file in `out` may not be replaced.
    TargetBusyError
        If another comparison writes to `out`.
    SpecConflictError
        If `out` holds results with other settings or files.
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
    >>> comparison = compare(path, maps=["gcws"], k=[16, 64], exact=False, progress=False)
    >>> [(result.name, result.k, result.row_bytes) for result in comparison.results]
    [('linear', None, 16), ('gcws', 16, 16), ('gcws', 64, 64)]
    """
    given = [maps] if isinstance(maps, str) else maps
    names = [check_choice(name, "maps", tuple(MAPS)) for name in dict.fromkeys(given)]
    sizes = sorted({check_integer(each, "k", low=1) for each in (k if isinstance(k, Iterable) else [k])})
    if not names or not sizes:
        raise ConfigError("a comparison needs at least one map and one number of components; name them in maps and k")
    began, seconds = time.monotonic(), math.inf if minutes == math.inf else 60 * check_real(minutes, "minutes", above=0)
    ends = began + seconds
    check_fraction(test_fraction, "test_fraction")
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
        test_fraction=None if test is not None else test_fraction,
        seed=check_integer(random_state, "random_state", low=0, high=2**63),
    )
    source, test = _source(source), None if test is None else _source(test)
    if out is not None:
        inputs = [*source.patterns, *(() if test is None else test.patterns)]
        check_result_folder(out, inputs=inputs, overwrite=overwrite)
    rows = load_rows(source, test, test_fraction=test_fraction, seed=settings.seed)
    n_rows = len(rows.y)
    n_validation = sum(int(part.sum()) for part in held_out_parts(rows.y, settings))
    sizes_of = {name: [size for size in sizes if size <= n_rows or not name.startswith("nystroem")] for name in names}
    if not any(sizes_of.values()):
        raise ConfigError(
            f"k={sizes[0]:,} landmarks or more cannot be taken from {n_rows:,} training rows; give a smaller k"
        )
    counts: dict[str, Any] = {"n_train": n_rows, "n_validation": n_validation, "n_test": len(rows.y_test)}
    with ResultStore(out, {**asdict(settings), **rows.identity}, progress) as store:
        others = [store.result("linear", None, partial(fit_linear, rows, settings, ends))] if linear else []
        results, left_out = race(
            sizes_of,
            partial(_fit_map, store, rows, settings, ends),
            lambda found: Comparison(results=tuple(found), **counts),
            ends,
            {(name, size) for name, sizes in sizes_of.items() for size in sizes if store.has(name, size)},
        )
        is_early = n_rows <= EXACT_ROWS and time.monotonic() < began + EXACT_SHARE * seconds
        others += [
            store.result(name, None, partial(fit_exact, rows, kernel, settings))
            for kernel, name in {KERNELS[name]: f"exact {KERNELS[name]}" for name in sizes_of}.items()
            if exact is True or (exact == "auto" and (is_early or store.has(name, None)))
        ]
        comparison = Comparison(
            results=(*others, *results),
            settings=asdict(settings),
            left_out=tuple(left_out),
            **counts,
        )
        if out is not None:
            comparison.save(out, overwrite=overwrite)
    return comparison


def _fit_map(
    store: ResultStore, rows: ComparedRows, settings: FitSettings, ends: float, name: str, k: int
) -> Result | None:
    """Choose gamma, if the kernel has one, and fit; None if the time ends before, unless there is no map yet."""
    gamma, is_final = None, True
    if KERNELS[name] == "rbf_cosine":
        choose = partial(choose_gamma, rows, name, settings, ends, store.note)
        gamma, is_final = store.value(f"gamma of {name}", choose)
        if not is_final and any(result.k for result in store.results):
            return None

    def fit() -> Result:
        result = fit_mapped(rows, name, k, gamma, settings, ends)
        return replace(result, is_cut_short=result.is_cut_short or not is_final)

    return store.result(name, k, fit)


def _source(given: Any) -> Source:
    # late import: readers are loaded only if there is something to read
    from dkfeat.engine.dataset.dataset import dataset_reader
    from dkfeat.sources.formats import as_source

    source = as_source(given)
    for path in (source.urlpath,) if isinstance(source.urlpath, str) else source.urlpath:
        if dataset_reader(path, source.storage_options) is not None:
            raise ConfigError(
                f"{path} holds shards; a comparison makes features itself: give the rows they were made from"
            )
    return source
