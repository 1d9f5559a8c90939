"""Feature maps side by side: accuracy against the number of components, cost, and which one to take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from dkfeat.errors import ConfigError
from dkfeat.learn.c_grid import DEFAULT_C, LOSSES, checked_grid, split_held_out
from dkfeat.learn.compared_models import KERNELS, MAPS, FitSettings, choose_gamma, fit_exact, fit_linear, fit_mapped
from dkfeat.learn.compared_rows import load_rows
from dkfeat.learn.comparison import Comparison, Result
from dkfeat.learn.result_store import ResultStore
from dkfeat.validation import check_choice, check_integer, check_real

if TYPE_CHECKING:
    from os import PathLike

    from dkfeat.io.source import Source

__all__ = ["DEFAULT_GAMMA", "DEFAULT_K", "DEFAULT_MAPS", "compare"]

DEFAULT_MAPS = ("gcws", "nrff", "nystroem-gmm", "nystroem-rbf")
DEFAULT_K = (32, 64, 128, 256, 512, 1024)
DEFAULT_GAMMA = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
GAMMA_COMPONENTS = 256
"""Gamma is chosen at the largest number of components up to this, and kept for the others."""
EXACT_ROWS = 3000
"""Most training rows on which exact kernel machines are fitted unless they are asked for."""


def compare(
    source: Source | str | Sequence[str],
    *,
    test: Source | str | Sequence[str] | None = None,
    maps: str | Sequence[str] = DEFAULT_MAPS,
    k: int | Sequence[int] = DEFAULT_K,
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

    A part of the training rows, drawn by seed, is held out: it chooses C, gamma and the recommendation. The test rows
    choose nothing; they judge the models, each fitted to all training rows with its C and gamma.

    All rows are held in memory. On disk, if `out` is given: a line of ``results.jsonl`` as soon as a number is known,
    and at the end the table as text, JSON and CSV and, where matplotlib is installed, the plot. A comparison that was
    interrupted goes on where it was if it is asked for once more with the same settings and files.

    Parameters
    ----------
    source : LibsvmSource, ParquetSource, str or sequence of str
        Rows of one class each, without weights: a source, or the path, glob or URL of LIBSVM text.
    test : like `source`, optional
        Rows on which accuracy is told. Left out: a part of the rows, chosen by seed.
    maps : str or sequence of str
        Of "gcws", "nrff", "rff", "nystroem-gmm" and "nystroem-rbf". The RBF kernel is ``exp(-gamma (1 - cosine))``.
    k : int or sequence of int
        Numbers of components. Nyström maps leave out those beyond the number of training rows.
    C, gamma : float or sequence of float
        Each is chosen on the held-out rows: C for every model, gamma for every map of an RBF kernel at the largest of
        `k` up to 256.
    loss : {"squared_hinge", "hinge", "log_loss"}, default="squared_hinge"
        Of LIBLINEAR.
    linear : bool, default=True
        Whether a linear model on the raw rows, scaled to unit length, is trained too.
    exact : "auto" or bool, default="auto"
        Whether exact kernel machines are fitted too; "auto": up to 3,000 training rows.
    within : float, default=0.005
        Held-out accuracy below the best map's that a cheaper one may have to be recommended, at least 0.
    validation_fraction : float, default=0.1
        Part of the training rows that is held out, in (0, 1).
    test_fraction : float, default=0.25
        Part of all rows that is the test rows where `test` is left out, in (0, 1).
    random_state : int, default=0
        Seed of maps and parts, at least 0.
    out : str or path, optional
        Local folder for results.
    progress : bool or callable, default=True
        True tells each result on standard error, in a notebook below the cell. A callable is given it.

    Returns
    -------
    comparison : Comparison
        Results, recommendation, tables and plot.

    Raises
    ------
    ConfigError
        For a setting out of range, for shards, and for rows with lists of labels, without labels or with weights.
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
    given = [maps] if isinstance(maps, str) else maps
    names = [check_choice(name, "maps", tuple(MAPS)) for name in dict.fromkeys(given)]
    sizes = sorted({check_integer(each, "k", low=1) for each in (k if isinstance(k, Iterable) else [k])})
    if not names or not sizes:
        message = "a comparison needs one map and one number of components or more; name them in maps and k"
        raise ConfigError(message)
    within = check_real(within, "within")
    if within < 0:
        message = f"within={within:g}, but it must be at least 0"
        raise ConfigError(message)
    for name, fraction in (("validation_fraction", validation_fraction), ("test_fraction", test_fraction)):
        if not check_real(fraction, name, above=0) < 1:
            message = f"{name}={fraction:g}, but it must be below 1"
            raise ConfigError(message)
    settings = FitSettings(
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
    n_rows = len(rows.y)
    n_validation = int(split_held_out(rows.y, validation_fraction, settings.seed).sum())
    able = {name: [size for size in sizes if size <= n_rows or not name.startswith("nystroem")] for name in names}
    if not any(able.values()):
        message = f"k={sizes[0]:,} landmarks or more cannot be taken from {n_rows:,} training rows; give a smaller k"
        raise ConfigError(message)
    store = ResultStore(out, {**asdict(settings), **rows.identity}, progress)
    if linear:
        store.result("linear", None, partial(fit_linear, rows, settings))
    if exact is True or (exact == "auto" and n_rows <= EXACT_ROWS):
        for kernel in dict.fromkeys(KERNELS[name] for name in names):
            store.result(f"exact {kernel}", None, partial(fit_exact, rows, kernel, settings))
    for name in names:
        chosen: float | None = None
        if KERNELS[name] == "rbf_cosine" and able[name]:
            chosen = store.value(f"gamma of {name}", partial(choose_gamma, rows, name, settings, store.tell))
        for size in able[name]:
            store.result(name, size, partial(fit_mapped, rows, name, size, chosen, settings))
    comparison = Comparison(
        results=store.results,
        within=within,
        n_train=n_rows,
        n_validation=n_validation,
        n_test=len(rows.y_test),
        settings=asdict(settings),
    )
    if out is not None:
        comparison.save(out)
    return comparison


def _source(given: Any) -> Source:
    # readers load when there is something to read
    from dkfeat.engine.arguments import as_source
    from dkfeat.learn.prediction_source import dataset_reader

    source = as_source(given)
    for path in (source.urlpath,) if isinstance(source.urlpath, str) else source.urlpath:
        if dataset_reader(path, source.storage_options) is not None:
            message = f"{path} holds shards; a comparison makes features itself: give the rows they were made from"
            raise ConfigError(message)
    return source
