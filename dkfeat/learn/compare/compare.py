"""Comparison of feature maps: accuracy against the number of components, cost, and a recommendation."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain, count
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal

from dkfeat.config.train import Liblinear, as_grid, check_fraction
from dkfeat.engine.dataset.dataset import dataset_reader
from dkfeat.engine.progress import Progress, clock
from dkfeat.engine.resolve import with_encoder
from dkfeat.errors import ConfigError
from dkfeat.learn.compare.comparison import Comparison, LeftOut, Result
from dkfeat.learn.compare.fits import MAPS, RANK, Fits, FitSettings
from dkfeat.sources.formats import as_source
from dkfeat.validation import check_choice, check_integer, check_real

if TYPE_CHECKING:
    from dkfeat.sources.base import Source


DEFAULT_MAPS = ("gcws", "gcws-rank", "dart", "nrff", "nystroem-gmm", "nystroem-rbf")
DEFAULT_COMPONENTS = (32, 64, 128, 256, 512, 1024)
DEFAULT_GAMMA = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
BASELINES = ("linear", "exact", "exact-if-small")
GAMMA_COMPONENTS = 128
"""Maximum number of components with which gamma is chosen; the chosen gamma is used for all numbers of components."""
GAMMA_WAIT = 8
"""How many times its own number of components the maps without gamma reach before the search for a map's gamma."""
EXACT_ROWS = 3000
"""Maximum number of training rows for "exact-if-small"."""
EXACT_SHARE = 0.5
"""Share of the time that may be used when such machines begin."""


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
        Rows with one class each, without weights: a source, or the path, glob or URL of LIBSVM text. The encoder of a
        source is fitted to the training rows; a table has a `TableEncoder` by default.
    test : like `source`, or float, default=0.25
        Rows on which accuracy is measured, or the share of the rows of `source`, in (0, 1), drawn for it by the seed.
    maps : str or sequence of str
        Of "gcws", "gcws-rank", "dart", "minhash", "nrff", "rff", "nystroem-gmm" and "nystroem-rbf", one or more.
        "gcws-rank" takes columns scaled by `ColumnScale`, and is left out for rows with an encoder, as those of tables.
        "minhash" is for sets, rows of zeros and ones. The RBF kernel is ``exp(-gamma (1 - cosine))``.
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
        True prints each result on standard error. A callable receives each result.

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
    test_fraction = check_fraction(test, "test") if isinstance(test, Real) else None
    if solver == "liblinear":
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
    given = _source(source, settings.seed)
    if given.encoder is not None:
        names = [name for name in names if not name.endswith(RANK)]
        if not names:
            raise ConfigError("gcws-rank scales columns of numbers, but these rows have an encoder; name gcws in maps")
    fits = Fits(given, None if test_fraction else _source(test, settings.seed), settings, ends)
    n_rows = len(fits.y)
    sizes_of = {name: [size for size in sizes if size <= n_rows or not name.startswith("nystroem")] for name in names}
    if not any(sizes_of.values()):
        raise ConfigError(
            f"n_components={sizes[0]:,} landmarks or more cannot be taken from {n_rows:,} training rows; give less"
        )
    kernels = dict.fromkeys(MAPS[name][0] for name in names)
    may_be_exact = "exact" in extra or ("exact-if-small" in extra and n_rows <= EXACT_ROWS)
    n_results = ("linear" in extra) + sum(map(len, sizes_of.values())) + may_be_exact * len(kernels)
    report = _reporter(progress, n_results, began, seconds)
    others = [report(fits.linear())] if "linear" in extra else []
    results, left_out = _fit_maps(fits, sizes_of, ends, report)
    if "exact" in extra or (may_be_exact and time.monotonic() < began + EXACT_SHARE * seconds):
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
    """Fit all maps with rising numbers of components; at least one fit, and none that would end too late.

    A map whose gamma is searched waits for the sizes up to `GAMMA_WAIT` times its own of maps without gamma.
    """
    done: dict[str, list[Result]] = {name: [] for name in sizes_of}
    left_out: dict[str, list[int]] = {}
    gammas: dict[str, tuple[float | None, bool]] = {
        name: (None, False) for name in sizes_of if MAPS[name][0] != "rbf_cosine"
    }
    wait = {name: 1 if name in gammas else GAMMA_WAIT for name in sizes_of}
    tries = [(name, k) for name, sizes in sizes_of.items() for k in sizes]
    for name, k in sorted(tries, key=lambda each: each[1] * wait[each[0]]):
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


def _reporter(progress: Any, n_results: int, began: float, seconds: float) -> Callable[[Result], Result]:
    """Return the function that reports a result, of at most `n_results` in `seconds` or more, and returns it."""
    lines, numbers = Progress(progress is True), count(1)
    limit = "" if seconds == math.inf else f" of {clock(seconds)}"

    def report(result: Result) -> Result:
        if callable(progress):
            progress(result)
        elapsed = f"{clock(time.monotonic() - began)}{limit}"
        lines.note(f"compare: {result.describe()}; {next(numbers)} of {n_results} after {elapsed}")
        return result

    return report


def _listed(given: Any) -> list[Any]:
    return list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]


def _source(given: Any, seed: int) -> Source:
    """Check a source, which gets an encoder if its rows are those of a table."""
    source = as_source(given)
    encoder, is_auto = source.encoder, source.encoder is None
    if is_auto and source.may_be_table:
        from dkfeat.encoders.table import TableEncoder  # late: other sources do not need it

        encoder = TableEncoder()
    if encoder is not None:
        source = with_encoder(source, source.files(), encoder, seed, is_auto=is_auto)
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
