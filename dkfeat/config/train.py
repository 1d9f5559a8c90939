"""Settings of a training: the solvers and their options, and the `train` part of a job file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Self

from dkfeat.config.settings import Positive, Settings, check_keys, errors_at
from dkfeat.errors import ConfigError

CLASS_LOSSES = ("squared_hinge", "hinge", "log_loss")
"""Losses for classes, the default first."""
REAL_LOSSES = ("squared_error", "huber")
"""Losses for regression, the default first."""
TASKS = ("auto", "classification", "regression")
LEAST_WEIGHT, MOST_WEIGHT = 1e-60, 1e60
"""Bounds of class weights and of row weights that are not 0: products of their squares then stay within float64."""
DEFAULT_C = (0.01, 0.1, 1.0, 10.0, 100.0)
C_TEXT = ",".join(f"{C:g}" for C in DEFAULT_C)
"""The value of `DEFAULT_C` as the command line takes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SGD(Settings):
    """Stochastic gradient descent over shards that need not fit in memory.

    Every epoch reads all shards in a new seeded order and shuffles rows in a bounded buffer. Each row takes one step in
    every model: one-vs-rest models of all classes, for each `loss` and each `alpha`.

    Parameters
    ----------
    loss : str or sequence of str, optional
        Loss, or several: for classes squared_hinge (the default), hinge or log_loss, for regression squared_error (the
        default) or huber. With "squared_hinge" the model is a linear support vector machine, as ``LinearSVC``; "hinge"
        is less sensitive to wrong labels, "log_loss" is logistic regression, "huber" is robust to outliers.
    alpha : float or sequence of float, default=1e-6
        Strength of the l2 penalty, above 0; several are trained together, and the best is kept. Training minimises
        the mean loss of a row plus ``alpha / 2`` times the squared length of the weights for rows scaled to length one
        (of codes by ``1 / sqrt(n_components)``), without the intercept: `alpha` of ``SGDClassifier`` on such rows,
        ``1 / (n_rows * C)`` of ``LinearSVC``. For the unscaled ones of codes that is ``n_components * alpha``.
        Averaging and the bounded number of steps regularise more than the penalty: increase it for noisy labels. The
        best model on held-out rows is kept, or of equal ones that with the largest alpha. ``model.training["grid"]``
        has the scores of all.
    epochs : int, optional
        Passes over the shards; by default enough for 150,000 rows per class, but between 5 and 40.
    average : bool, default=True
        Return the mean of the weights over all steps instead of the last ones. With `parts` of fewer than
        10,000 rows, steps of the t-th average count t times.
    patience : int, optional
        Stop after this many successive epochs without a better held-out score; by default never. The model of the best
        epoch is then returned, otherwise that of the last one.
    validation_fraction : float, optional
        Share of the rows held out to choose among models; by default 0.1 if there is a choice. It is in (0, 1), and
        replaces validation shards. The choice of rows depends only on the seed and the position of a row in the source.
    refit : bool, default=False
        Train once more on all rows, with the settings chosen on held-out rows. As in `GridSearchCV`, these are loss,
        alpha and, with `patience`, epochs; it costs a second training, of one model. Otherwise the model is not trained
        on held-out rows, as with ``SGDClassifier(early_stopping=True)``.
    shuffle_rows : int, optional
        Rows that are shuffled in memory; by default as many as take 64 MiB in their shards. If a source is sorted by
        label, the buffer should hold several shards.
    loaders : int, default=1
        Shards that are read at the same time. Weights do not depend on it.
    parts : int, optional
        Number of parts of the shards that are trained in parallel; by default one, or with a client one for each 10,000
        rows, but at most 256 and at most one for each shard, so that one seed gives the same model on any cluster.
        Weights are averaged up to four times per epoch (at most once for each shard of a part), with momentum. All
        parts have about the same number of rows. The same seed and number of parts give the same weights, bit for bit,
        even on other workers or if workers are lost. A warning is logged for parts with fewer rows, because they reach
        less accuracy. One part, or no client, is one descent in this process.
    task : {"auto", "classification", "regression"}, default="auto"
        Kind of labels; "auto": classes, unless the loss is one for regression. Shards with lists of labels give one
        model for each label, trained against the rest.
    class_weight : "balanced" or mapping of label to float, optional
        Weight of the rows of each class, such as ``{"yes": 3}``; 1 for labels that are not in the mapping. "balanced"
        sets weights in inverse proportion to the number of rows of the class, 1 on average.

    Raises
    ------
    ConfigError
        For an option out of range.

    See Also
    --------
    dkfeat.Liblinear : The optimum, for features that fit in memory.

    Examples
    --------
    >>> SGD(alpha=[1e-6, 1e-5], epochs=5).alpha
    (1e-06, 1e-05)
    """

    loss: str | Sequence[str] | None = None
    alpha: float | Sequence[float] = 1e-6
    epochs: Positive | None = None
    average: bool = True
    patience: Positive | None = None
    validation_fraction: float | None = None
    refit: bool = False
    shuffle_rows: Positive | None = None
    loaders: Positive = 1
    parts: Positive | None = None
    task: Literal["auto", "classification", "regression"] = "auto"
    class_weight: Any = None

    def __post_init__(self) -> None:
        from dkfeat.validation import check_choice, check_integer, check_real

        _of_numpy(self)
        check_choice(self.task, "task", TASKS)
        losses = CLASS_LOSSES + REAL_LOSSES
        _set(self, loss=_checked(self.loss, "loss", lambda item: check_choice(item, "loss", losses)))
        _set(self, class_weight=_class_weight(self.class_weight))
        _set(self, alpha=_checked(self.alpha, "alpha", lambda item: check_real(item, "alpha", above=0)))
        for name in ("epochs", "patience", "shuffle_rows", "loaders", "parts"):
            value = getattr(self, name)
            if value is not None:
                _set(self, **{name: check_integer(value, name, low=1)})
        if self.validation_fraction is not None:
            _set(self, validation_fraction=check_fraction(self.validation_fraction))


@dataclass(frozen=True, slots=True, kw_only=True)
class Liblinear(Settings):
    """LIBLINEAR on features that are all held in memory: the optimum of one loss for classes.

    Rows are scaled to unit length, so that one `C` means the same for every map.

    Parameters
    ----------
    loss : {"squared_hinge", "hinge", "log_loss"}, default="squared_hinge"
        Loss of a linear support vector machine, or of logistic regression. The models are scikit-learn's
        ``LinearSVC``, or for "log_loss" ``LogisticRegression(solver="liblinear")``; several classes are trained one
        against the rest, and the intercept is penalised as weights are.
    C : float or sequence of float, default=(0.01, 0.1, 1, 10, 100)
        Weight of the losses against the penalty, or several to try, above 0. The model is fitted to all rows with the
        value that scores best on the held-out rows, or of equal ones with the smallest.
    validation_fraction : float, default=0.1
        Share of the rows that is held out to choose, in (0, 1).
    task : {"auto", "classification"}, default="auto"
        Labels are classes.
    class_weight : "balanced" or mapping of label to float, optional
        Weight of the rows of each class, as for `SGD`.

    Raises
    ------
    ConfigError
        For an option out of range.

    See Also
    --------
    dkfeat.SGD : For shards that do not fit in memory, for regression and lists of labels.

    Examples
    --------
    >>> Liblinear(C=[10, 0.1]).C
    (0.1, 10.0)
    """

    loss: str = CLASS_LOSSES[0]
    C: float | Sequence[float] = DEFAULT_C
    validation_fraction: float = 0.1
    task: Literal["auto", "classification", "regression"] = "auto"
    class_weight: Any = None

    def __post_init__(self) -> None:
        from dkfeat.validation import check_choice

        _of_numpy(self)
        if check_choice(self.task, "task", TASKS) == "regression":
            raise ConfigError(foreign_options(["task='regression'"]))
        if not isinstance(self.loss, str):
            raise ConfigError(foreign_options(["several losses"]))
        check_choice(self.loss, "loss", CLASS_LOSSES)
        _set(self, class_weight=_class_weight(self.class_weight))
        grid = as_grid(self.C, "C")
        _set(self, C=grid if len(grid) > 1 else grid[0], validation_fraction=check_fraction(self.validation_fraction))


SOLVERS: Mapping[str, type[SGD | Liblinear]] = {"sgd": SGD, "liblinear": Liblinear}
"""Solvers by the names that `dkfeat.train`, the command line and job files have for them."""
_HARMLESS = ("refit", "loaders")
"""Options of sgd that liblinear ignores: it always refits, and reads once."""


def split_solver_options(name: str, options: Mapping[str, Any]) -> tuple[type[SGD | Liblinear], dict[str, Any]]:
    """Class of a solver, and those of the options that are its own and not None.

    Parameters
    ----------
    name : str
        One of `SOLVERS`.
    options : mapping
        Options of any solver.

    Raises
    ------
    ConfigError
        For another name, or an option of another solver that is not at its default.

    Examples
    --------
    >>> split_solver_options("liblinear", {"C": 1.0, "alpha": None})
    (<class 'dkfeat.config.train.Liblinear'>, {'C': 1.0})
    """
    from dkfeat.validation import check_choice

    kind = SOLVERS[check_choice(name, "solver", tuple(SOLVERS))]
    given = {key: value for key, value in options.items() if value is not None}
    own = {item.name for item in fields(kind)}
    defaults = {item.name: item.default for other in SOLVERS.values() for item in fields(other)}
    foreign = [key for key in defaults if key in given.keys() - own - {*_HARMLESS} and given[key] != defaults[key]]
    if foreign and kind is SGD:
        raise ConfigError(
            f'C={given["C"]!r} is for solver="liblinear"; for "sgd" give alpha, which is 1 / (n_rows * C)'
        )
    if foreign:
        raise ConfigError(foreign_options(foreign))
    return kind, {key: value for key, value in given.items() if key in own}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig(Settings):
    """One run of `dkfeat.train`; the options of its solver, `dkfeat.SGD` or `dkfeat.Liblinear`, are keys beside these.

    Examples
    --------
    >>> TrainConfig.from_mapping({"shards": "features", "alpha": 1e-5}).solver.alpha
    1e-05
    """

    shards: str
    """Folder of training shards."""
    test: str | None = None
    """Shards to score the model on after each epoch; they do not affect training."""
    validation: str | None = None
    """Shards that select alpha, loss and number of epochs."""
    init: str | None = None
    """Model to continue from, on shards of its map; by default for five epochs, with its loss."""
    out: str | None = None
    """Folder to save the model in, or its URL. Left out: the scores on `test` and `validation` are printed, and no
    model is saved."""
    overwrite: bool = False
    """Replace a model in this folder that was trained with other settings; with `init` this is not needed."""
    solver: SGD | Liblinear = field(default_factory=SGD)
    """Name of the solver, sgd or liblinear; its options are keys of the same mapping."""
    checkpoint: str | None = None
    """Local folder in which the state is saved every 30 s, and from which an interrupted training continues."""
    resume: bool = True
    """Continue from the checkpoint; if not, start again."""
    random_state: int = 0
    """Seed of the row order and of the rows held out."""
    storage_options: Mapping[str, Any] | None = None
    """Options of the store, for shards at URLs; a credential is given as ``env:NAME``, the name of a variable."""

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any], *, place: str = "") -> Self:
        """Read settings from plain values, as `Settings.from_mapping` does; they include the solver's options."""
        if not isinstance(mapping, Mapping):
            return super(TrainConfig, cls).from_mapping(mapping, place=place)
        of_solver = [item.name for kind in SOLVERS.values() for item in fields(kind)]
        check_keys(mapping, [item.name for item in fields(cls)] + of_solver, place)
        options = {key: value for key, value in mapping.items() if key in of_solver}
        rest = {key: value for key, value in mapping.items() if key not in (*of_solver, "solver")}
        made = super(TrainConfig, cls).from_mapping(rest, place=place)
        with errors_at(place):
            kind, options = split_solver_options(mapping.get("solver", "sgd"), options)
        return replace(made, solver=kind.from_mapping(options, place=place))


def several(value: Any) -> tuple[Any, ...]:
    """Return a tuple as it is, and any other value as a tuple of one."""
    return value if isinstance(value, tuple) else (value,)


def as_grid(values: Any, name: str) -> tuple[float, ...]:
    """Values of a parameter to try, ascending and without duplicates; a single number gives one value.

    Examples
    --------
    >>> as_grid([10, 0.1, 10], "C")
    (0.1, 10.0)
    """
    from dkfeat.validation import check_real

    given = list(values) if isinstance(values, Iterable) and not isinstance(values, str) else [values]
    if not given:
        raise ConfigError(f"{name} is an empty list; give one number above 0 or several")
    return tuple(sorted({check_real(value, name, above=0) for value in given}))


def check_fraction(value: Any, name: str = "validation_fraction") -> float:
    """Share of rows, in (0, 1)."""
    from dkfeat.validation import check_real

    share = check_real(value, name, above=0)
    if not share < 1:
        raise ConfigError(f"{name}={share:g}, but it must be below 1")
    return share


def _checked(given: Any, name: str, check: Callable[[Any], Any]) -> Any:
    """One value, or several different ones as a tuple, each checked."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        return None if given is None else check(given)
    items = tuple(given)
    if not items or len(set(items)) < len(items):
        raise ConfigError(f"{name}={given!r}, but it must be one value or several different ones")
    return tuple(check(item) for item in items)


def _class_weight(given: Any) -> str | dict[str, float] | None:
    """Check class weights, and return them by the labels as text."""
    from dkfeat.messages import show_label
    from dkfeat.validation import as_label, check_real

    if given is None or (isinstance(given, str) and given == "balanced"):
        return given
    if not isinstance(given, Mapping):
        raise ConfigError(f"class_weight={given!r:.80}, but it must be 'balanced' or such as {{1: 3}} or {{'yes': 3}}")
    weights: dict[str, float] = {}
    for label, weight in given.items():
        try:
            name = label if isinstance(label, str) else show_label(as_label(label))
        except (TypeError, ValueError):
            raise ConfigError(f"class_weight names {label!r:.100}, but labels are numbers or words") from None
        if name in weights:
            raise ConfigError(f"class_weight gives the label {name} twice; give each label one weight")
        weights[name] = check_real(weight, f"class_weight of {label}", low=LEAST_WEIGHT, high=MOST_WEIGHT)
    return weights


def foreign_options(names: Sequence[str]) -> str:
    """Error text for options that LIBLINEAR does not have."""
    return f'{", ".join(names)} cannot be given with solver="liblinear", which takes one loss and C; use solver="sgd"'


def _of_numpy(options: Any) -> None:
    """Convert scalars and arrays of NumPy to plain values, in an object under construction."""
    values = {item.name: getattr(options, item.name) for item in fields(options)}
    _set(options, **{name: value.tolist() for name, value in values.items() if hasattr(value, "tolist")})


def _set(options: Any, **values: Any) -> None:
    """Store checked values in a frozen object under construction."""
    for name, value in values.items():
        object.__setattr__(options, name, value)
