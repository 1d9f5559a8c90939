"""Job settings: frozen dataclasses read strictly from plain mappings, as YAML gives them."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, Self

import yaml

from dkfeat.errors import ConfigError
from dkfeat.wording import nearest

__all__ = [
    "EvaluateConfig",
    "FeaturizeConfig",
    "JobConfig",
    "MapConfig",
    "PredictConfig",
    "RunConfig",
    "SourceConfig",
    "TrainConfig",
    "load_config",
]


class _Settings:
    """Strict reading: unknown keys are refused with the nearest known one, values must have the declared type."""

    __slots__ = ()

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any], *, place: str = "") -> Self:
        """Read settings from plain values.

        Parameters
        ----------
        mapping : mapping of str to plain values
            As YAML or JSON give them.
        place : str
            Path of keys that leads here, for error messages.

        Raises
        ------
        ConfigError
            For an unknown key, a missing key or a value of another type; names the key path.
        """
        if not isinstance(mapping, Mapping):
            message = f"{place or 'settings'}: expected keys and values, got {_kind(mapping)}"
            raise ConfigError(message)
        hints = typing.get_type_hints(cls)
        values: dict[str, Any] = {}
        for key, value in mapping.items():
            path = f"{place}.{key}" if place else str(key)
            if key not in hints:
                message = f"{path}: unknown key; {nearest(str(key), list(hints), 'keys')}"
                raise ConfigError(message)
            values[key] = _read(value, hints[key], path)
        missing = [name for name in _required(cls) if name not in values]
        if missing:
            message = f"{place or 'settings'}: {', '.join(missing)} must be given"
            raise ConfigError(message)
        try:
            return cls(**values)
        except ConfigError as error:
            message = f"{place}: {error}" if place else str(error)
            raise ConfigError(message) from None

    def to_mapping(self) -> dict[str, Any]:
        """Plain values that `from_mapping` reads back to an equal object."""
        return {item.name: _plain(getattr(self, item.name)) for item in fields(self)}  # type: ignore[arg-type]
        # (the ignore above: every subclass is a dataclass, which a base without fields cannot say)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceConfig(_Settings):
    """Where rows come from; the options are those of ``LibsvmSource`` and ``ParquetSource``, and so are defaults."""

    urlpath: str | tuple[str, ...]
    """Path, glob or fsspec URL, or several."""
    format: Literal["auto", "libsvm", "parquet"] = "auto"
    """"auto": Parquet for names in .parquet, .parq and .pq and for folders of such files, else LIBSVM text."""
    n_features: int | None = None
    """Number of columns; left out: settled by a scan."""
    zero_based: bool | Literal["auto"] = "auto"
    """Whether the first column is 0 rather than 1."""
    blocksize: int | str = "64MiB"
    """Bytes of text a split or a piece holds, as a number or with a unit."""
    dtype: Literal["float32", "float64"] = "float32"
    """Type of the values in memory."""
    multilabel: bool = False
    """Labels are comma-separated lists."""
    query_id: bool | str = False
    """Rows carry ``qid:n``, or of Parquet a column ``qid`` or of this name, which is kept."""
    labels: tuple[float, ...] | None = None
    """Allowed labels; any other is an error."""
    label_dtype: Literal["auto", "int64", "float64"] = "auto"
    """Type of the labels."""
    max_line_bytes: int | str = "256MiB"
    """Bytes that the longest line may have, as a number or with a unit."""
    features: str | tuple[str, ...] | None = None
    """Parquet: feature columns; left out: all columns of numbers without another use."""
    features_as: Literal["auto", "columns", "vector", "sparse"] = "auto"
    """Parquet: how features are told."""
    label: str | None = "label"
    """Parquet: column of labels; null: rows have none."""
    weight: str | None = None
    """Parquet: column of weights, kept in shards."""
    id: str | None = None
    """Parquet: column kept in shards as ``id``."""
    keep: str | tuple[str, ...] = ()
    """Parquet: columns kept in shards."""
    filters: tuple[Any, ...] | None = None
    """Parquet: which rows are read, such as ``[[day, ">=", 2026-11-20]]``; all comparisons must hold."""
    storage_options: Mapping[str, Any] | None = None
    """For URLs, as fsspec takes them; a credential is given as ``env:NAME``, the name of a variable."""

    def __post_init__(self) -> None:
        if not self.urlpath:
            message = "urlpath is empty, but a source needs at least one file, glob or URL"
            raise ConfigError(message)
        if self.n_features is not None:
            _at_least("n_features", self.n_features, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class MapConfig(_Settings):
    """Which feature map, with which parameters."""

    name: str
    """Name of the map, such as "gcws"."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """The map's parameters by name; the map itself checks them."""

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any], *, place: str = "") -> Self:
        """Read settings from ``{name: ..., <parameter>: ...}``; `seed` is short for `random_state`."""
        if not isinstance(mapping, Mapping) or not isinstance(mapping.get("name"), str):
            message = f"{place or 'map'}: expected a `name`, such as gcws, beside the map's parameters"
            raise ConfigError(message)
        params = {str(key): value for key, value in mapping.items() if key != "name"}
        if "seed" in params:
            if "random_state" in params:
                message = f"{place or 'map'}: seed and random_state are the same setting; give one"
                raise ConfigError(message)
            params["random_state"] = params.pop("seed")
        seed = params.get("random_state")
        if seed is not None and (type(seed) is not int or not 0 <= seed < 2**64):
            key = "seed" if "seed" in mapping else "random_state"
            message = f"{place or 'map'}.{key}: expected a whole number from 0 to 2^64 - 1, got {seed!r}"
            raise ConfigError(message)
        return cls(name=mapping["name"], params=params)

    def to_mapping(self) -> dict[str, Any]:
        """Plain values that `from_mapping` reads back to an equal object."""
        return {"name": self.name, **self.params}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig(_Settings):
    """Where and how tasks run; nothing here changes a byte of the result."""

    scheduler: str | None = None
    """"threads", "processes", "synchronous", "cluster" (an embedded one) or an address. Left out: worker processes if
    `n_workers` or `memory_limit` is given, else what Dask is set to, else threads of this process."""
    n_workers: int | None = None
    """Threads or worker processes, by the scheduler, at least 1; left out: one for each core."""
    threads_per_worker: int | None = None
    """Threads in each worker, at least 1."""
    memory_limit: int | str | None = None
    """Bytes a worker process may hold; None: its share of the machine's memory."""
    in_flight: int | None = None
    """Tasks handed to the scheduler at a time, at least 1."""
    resume: bool = True
    """Go on with an interrupted run."""
    break_lock: str | None = None
    """Id of the run whose lock is to be taken over."""
    progress: bool = True
    """Report progress on standard error."""

    def __post_init__(self) -> None:
        for name in ("n_workers", "threads_per_worker", "in_flight"):
            value = getattr(self, name)
            if value is not None:
                _at_least(name, value, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeaturizeConfig(_Settings):
    """One run of `dkfeat.featurize`."""

    source: SourceConfig
    """What is read."""
    out: str
    """Target folder."""
    map: MapConfig | None = None
    """The feature map; may be left out where `like` gives it."""
    like: str | None = None
    """Folder of shards or model whose settings are taken over."""
    layout: Literal["codes", "sparse", "dense"] | None = None
    """Shard layout; None: the map's own."""
    on_bad_row: Literal["raise", "quarantine"] = "raise"
    """What a wrong row is: the end of the run, or set aside with its place."""
    max_bad_rows: int | float | str = 0.01
    """With "quarantine", the most rows set aside: a number, or a share such as 0.01 or "1%"."""
    on_changed_source: Literal["raise", "keep"] = "raise"
    """What a committed file that changed or vanished is: the end of the run, or left with its rows as committed."""
    target_options: Mapping[str, Any] | None = None
    """For `out` and `like` at URLs; a credential is given as ``env:NAME``, the name of a variable."""

    def __post_init__(self) -> None:
        if self.map is None and self.like is None:
            message = "neither `map` nor `like` is given; name a feature map or a folder whose settings are taken over"
            raise ConfigError(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig(_Settings):
    """One run of `dkfeat.train`."""

    shards: str
    """Folder of training shards."""
    test: str | None = None
    """Folder of shards that are scored only."""
    validation: str | None = None
    """Folder of shards that choose among alphas, losses and epochs."""
    validation_fraction: float | None = None
    """Instead: the share of the rows held out for that, in (0, 1); None: the trainer's own choice."""
    out: str | None = None
    """Where the model is saved."""
    task: Literal["auto", "classification", "regression"] = "auto"
    """What labels are; auto: classes, unless the loss is one for regression."""
    solver: Literal["sgd", "liblinear"] = "sgd"
    """Shard by shard, or with all features in memory."""
    C: float | tuple[float, ...] | None = None
    """For liblinear: weight of the losses or several, above 0; None: the trainer's own choice."""
    loss: str | tuple[str, ...] | None = None
    """Loss or several, by the names in `dkfeat.train`; None: the trainer's own choice."""
    alpha: float | tuple[float, ...] | None = None
    """Strength of the l2 penalty or several, above 0; None: the trainer's own choice."""
    epochs: int | None = None
    """Passes over the shards, at least 1; None: the trainer's own choice."""
    average: bool | None = None
    """Average the weights over the steps; None: the trainer's own choice."""
    class_weight: str | Mapping[str, Any] | None = None
    """"balanced", or weights by label; None: 1."""
    patience: int | None = None
    """Epochs without a better held-out score after which training stops, at least 1; None: all epochs are trained."""
    checkpoint: str | None = None
    """Local folder in which the state is saved, and from which an interrupted training goes on."""
    resume: bool = True
    """False begins anew whatever the checkpoint holds."""
    shuffle_rows: int | None = None
    """Rows mixed together, at least 1; None: the trainer's own choice."""
    loaders: int = 1
    """Shards read at the same time, at least 1."""
    parts: int | None = None
    """Parts trained side by side where `run` says, averaged after each epoch, at least 1; None: one descent."""
    random_state: int = 0
    """Seed of the row order and of the rows held out."""
    storage_options: Mapping[str, Any] | None = None
    """For shards at URLs; a credential is given as ``env:NAME``, the name of a variable."""

    def __post_init__(self) -> None:
        for name in ("epochs", "patience", "shuffle_rows", "loaders", "parts"):
            value = getattr(self, name)
            if value is not None:
                _at_least(name, value, 1)
        for alpha in self.alpha if isinstance(self.alpha, tuple) else (self.alpha,):
            if alpha is not None and not 0 < alpha < float("inf"):
                message = f"alpha={alpha}, but the penalty's strength must be positive and finite"
                raise ConfigError(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictConfig(_Settings):
    """One run of `dkfeat.predict`."""

    model: str
    """Folder of the model."""
    out: str
    """Target folder."""
    source: SourceConfig | None = None
    """What is read, where it is text or Parquet; what it leaves open is the model's."""
    shards: str | None = None
    """Instead: folder of shards of the model's map."""
    scores: bool = True
    """Keep scores, and probabilities where the model has them."""
    on_bad_row: Literal["raise", "quarantine"] = "raise"
    """What a wrong row is: the end of the run, or set aside with its place."""
    max_bad_rows: int | float | str = 0.01
    """With "quarantine", the most rows set aside: a number, or a share such as 0.01 or "1%"."""
    storage_options: Mapping[str, Any] | None = None
    """For `shards` at a URL; a credential is given as ``env:NAME``, the name of a variable."""
    target_options: Mapping[str, Any] | None = None
    """For `out` at a URL, likewise."""

    def __post_init__(self) -> None:
        _one_of("source", self.source, "shards", self.shards)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateConfig(_Settings):
    """One run of `dkfeat.evaluate`."""

    model: str
    """Folder of the model."""
    out: str | None = None
    """Folder for the report: plots, evaluation.json and evaluation.html; None: figures are printed alone."""
    source: SourceConfig | None = None
    """What is read, where it is text or Parquet with labels; what it leaves open is the model's."""
    shards: str | None = None
    """Instead: folder of shards of the model's map, or of predictions that the model made."""
    storage_options: Mapping[str, Any] | None = None
    """For `shards` at a URL; a credential is given as ``env:NAME``, the name of a variable."""

    def __post_init__(self) -> None:
        _one_of("source", self.source, "shards", self.shards)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobConfig(_Settings):
    """What a job file holds: runs of featurize in order, training, predictions and evaluations, and where to run them.

    Examples
    --------
    >>> job = JobConfig.from_mapping({"featurize": [
    ...     {"source": {"urlpath": "day1.svm"}, "map": {"name": "gcws", "seed": 0}, "out": "features"}]})
    >>> job.featurize[0].map.params
    {'random_state': 0}
    >>> JobConfig.from_mapping({"featurise": []})
    Traceback (most recent call last):
    dkfeat.errors.ConfigError: featurise: unknown key; did you mean 'featurize'?
    """

    featurize: tuple[FeaturizeConfig, ...] = ()
    """Runs of featurize, in order."""
    train: TrainConfig | None = None
    """Training, after all of them."""
    predict: tuple[PredictConfig, ...] = ()
    """Runs of predict, in order."""
    evaluate: tuple[EvaluateConfig, ...] = ()
    """Runs of evaluate, in order."""
    run: RunConfig = field(default_factory=RunConfig)
    """Where and how tasks run."""


def load_config(path: str | Path) -> JobConfig:
    """Read a job file.

    Parameters
    ----------
    path : str or Path
        YAML of plain values.

    Raises
    ------
    ConfigError
        If the file cannot be read, is not YAML of plain values, repeats a key, or holds settings that
        `JobConfig.from_mapping` refuses. The text starts with the file's name.
    """
    try:
        content = _StrictLoader(Path(path).read_text(encoding="utf-8")).get_single_data()
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        message = f"{path}: cannot be read as a job file: {' '.join(str(error).split())}"
        raise ConfigError(message) from None
    try:
        return JobConfig.from_mapping({} if content is None else content)
    except ConfigError as error:
        message = f"{path}: {error}"
        raise ConfigError(message) from None


class _StrictLoader(yaml.SafeLoader):
    """The safe loader, which also refuses a key given twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for index, key in enumerate(keys):
            if key in keys[:index]:
                message = f"key {key!r} is given twice"
                raise yaml.constructor.ConstructorError(None, None, message, node.start_mark)
        return super().construct_mapping(node, deep)


def _read(value: Any, hint: Any, path: str) -> Any:
    """Check a plain value against a type hint; lists become tuples, mappings become settings."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, type) and issubclass(hint, _Settings):
        return hint.from_mapping(value, place=path)
    if hint is Any:
        return value
    if hint is bool or hint is str:
        accepted = isinstance(value, hint)
    elif hint is int:
        accepted = isinstance(value, int) and not isinstance(value, bool)
    elif hint is float:
        accepted = isinstance(value, int | float) and not isinstance(value, bool)
        value = float(value) if accepted else value
    elif hint is type(None):
        accepted = value is None
    elif origin is Literal:
        accepted = any(value == choice and type(value) is type(choice) for choice in arguments)
    elif origin is Mapping:
        accepted = isinstance(value, Mapping) and all(isinstance(key, str) for key in value)
    elif origin is tuple:
        accepted = isinstance(value, Sequence) and not isinstance(value, str)
        if accepted:
            return tuple(_read(item, arguments[0], f"{path}[{index}]") for index, item in enumerate(value))
    else:
        return _read_union(value, arguments, path)
    if not accepted:
        message = f"{path}: expected {_describe(hint)}, got {value!r} ({_kind(value)})"
        raise ConfigError(message)
    return value


def _read_union(value: Any, choices: tuple[Any, ...], path: str) -> Any:
    settings = [hint for hint in choices if isinstance(hint, type) and issubclass(hint, _Settings)]
    if settings and value is not None:
        return settings[0].from_mapping(value, place=path)
    for hint in choices:
        try:
            return _read(value, hint, path)
        except ConfigError:
            continue
    expected = " or ".join(_describe(hint) for hint in choices)
    message = f"{path}: expected {expected}, got {value!r} ({_kind(value)})"
    raise ConfigError(message)


def _required(cls: type) -> list[str]:
    return [f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING]


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        message = f"{name}={value}, but it must be at least {least}"
        raise ConfigError(message)


def _one_of(name: str, value: Any, other: str, other_value: Any) -> None:
    if (value is None) == (other_value is None):
        which = "neither" if value is None else "both"
        message = f"{which} of `{name}` and `{other}` given; name the rows by one of them"
        raise ConfigError(message)


def _describe(hint: Any) -> str:
    if typing.get_origin(hint) is Literal:
        return " or ".join(repr(choice) for choice in typing.get_args(hint))
    if typing.get_origin(hint) is tuple:
        return f"a list of {_describe(typing.get_args(hint)[0])}"
    if isinstance(hint, types.UnionType):
        return " or ".join(_describe(choice) for choice in typing.get_args(hint))
    names = {
        int: "a whole number",
        float: "a number",
        str: "text",
        bool: "true or false",
        type(None): "nothing",
        Any: "values",
    }
    return names.get(hint, "keys and values")


def _kind(value: Any) -> str:
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "text", type(None): "nothing"}
    return names.get(type(value), "a list" if isinstance(value, list | tuple) else type(value).__name__)


def _plain(value: Any) -> Any:
    if isinstance(value, _Settings):
        return value.to_mapping()
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value
