"""Job files: sources, feature maps, training, predictions and evaluations, and searches for neighbours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from dkfeat.config.execution import ExecutionConfig
from dkfeat.config.settings import Positive, Settings, errors_at, one_of, read_yaml
from dkfeat.config.train import TrainConfig
from dkfeat.errors import ConfigError

Layout = Literal["codes", "sparse", "dense"]
"""Layout of the features in shards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceConfig(Settings):
    """Source files, and the options of their format as keys beside these; the class of the format checks them."""

    urlpath: str | tuple[str, ...]
    """Path, glob or fsspec URL, or several."""
    format: str = "auto"
    """Name of the format; auto: Parquet for names in .parquet, .parq and .pq and for folders of such files, JSON lines
    for names in .jsonl and .ndjson, also compressed, else LIBSVM text."""
    storage_options: Mapping[str, Any] | None = None
    """Options of fsspec for URLs; a credential is given as ``env:NAME``, the name of a variable."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the format by name."""

    def __post_init__(self) -> None:
        if not self.urlpath:
            raise ConfigError("urlpath is empty, but a source needs at least one file, glob or URL")
        misplaced = [name for name in ("on_bad_row", "max_bad_rows") if name in self.options]
        if misplaced:
            raise ConfigError(
                f"{misplaced[0]}: unknown key; under featurize and predict, give it beside `source`, not in it"
            )

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any], *, place: str = "") -> Self:
        """Read settings from ``{urlpath: ..., <option>: ...}``."""
        if not isinstance(mapping, Mapping):
            return super(SourceConfig, cls).from_mapping(mapping, place=place)
        own = {key: value for key, value in mapping.items() if key in ("urlpath", "format", "storage_options")}
        options = {str(key): value for key, value in mapping.items() if key not in own}
        return super(SourceConfig, cls).from_mapping({**own, "options": options}, place=place)


@dataclass(frozen=True, slots=True, kw_only=True)
class MapConfig(Settings):
    """Feature map and its parameters."""

    name: str
    """Name of the map, such as "gcws"."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """The map's parameters by name; the map itself checks them."""

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any], *, place: str = "") -> Self:
        """Read settings from ``{name: ..., <parameter>: ...}``; `seed` is short for `random_state`."""
        if not isinstance(mapping, Mapping) or not isinstance(mapping.get("name"), str):
            raise ConfigError(f"{place or 'map'}: expected a `name`, such as gcws, beside the map's parameters")
        params = {str(key): value for key, value in mapping.items() if key != "name"}
        if "seed" in params:
            if "random_state" in params:
                raise ConfigError(f"{place or 'map'}: seed and random_state are the same setting; give one")
            params["random_state"] = params.pop("seed")
        seed = params.get("random_state")
        if seed is not None and (type(seed) is not int or not 0 <= seed < 2**64):
            key = "seed" if "seed" in mapping else "random_state"
            raise ConfigError(f"{place or 'map'}.{key}: expected a whole number from 0 to 2^64 - 1, got {seed!r}")
        return cls(name=mapping["name"], params=params)


@dataclass(frozen=True, slots=True, kw_only=True)
class WritingConfig(Settings):
    """Target of a run, and what it does with bad rows."""

    out: str
    """Target: a folder, or its URL."""
    on_bad_row: Literal["raise", "quarantine"] = "raise"
    """If a row is bad, end the run, or store the row separately for ``dkfeat quarantine DIR`` to list."""
    max_bad_rows: int | float | str = 0.01
    """Bad rows allowed with quarantine: a number such as 100, or a share such as 1% or 0.01."""
    target_options: Mapping[str, Any] | None = None
    """Options of fsspec for `out` and `like` at URLs; a credential is given as ``env:NAME``, the name of a variable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeaturizeConfig(WritingConfig):
    """One run of `dkfeat.featurize`."""

    source: SourceConfig
    """Files to read."""
    map: MapConfig | None = None
    """The feature map; may be left out if `like` names one."""
    like: str | None = None
    """Shards or model whose map and input options are used."""
    encoder: Mapping[str, Any] | None = None
    """Parameters of an encoder by name, such as ``categories`` or ``column_scale``. Left out: their defaults."""
    layout: Layout | None = None
    """Layout of the features in shards. Left out: the map's own."""
    delta: bool = False
    """Begin a Delta Lake log of the target, which every later commit extends."""
    on_changed_source: Literal["raise", "keep"] = "raise"
    """If a committed file has changed or is gone, end the run, or keep its rows as committed and continue."""

    def __post_init__(self) -> None:
        if self.map is None and self.like is None:
            raise ConfigError("neither `map` nor `like` is given; name a feature map, or a folder whose map is used")


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictConfig(WritingConfig):
    """One run of `dkfeat.predict`."""

    model: str
    """Folder of the model, or its URL."""
    source: SourceConfig | None = None
    """Text or Parquet files to read; options left out are the model's."""
    shards: str | None = None
    """Folder of shards of the model's map, in place of `source`."""
    scores: bool = True
    """Keep scores, and probabilities if the model has them."""
    storage_options: Mapping[str, Any] | None = None
    """Options for `shards` and `model` at a URL; a credential is given as ``env:NAME``, the name of a variable."""

    def __post_init__(self) -> None:
        one_of("source", self.source, "shards", self.shards)
        if self.out.lower().endswith((".csv", ".txt", ".parquet", ".json")):
            raise ConfigError(f"out={self.out!r}, but a job predicts into a folder; for one file use `dkfeat predict`")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateConfig(Settings):
    """One run of `dkfeat.evaluate`."""

    model: str
    """Folder of the model, or its URL."""
    out: str | None = None
    """Folder for the report: plots, evaluation.json and one page, evaluation.html. Left out: figures are printed."""
    overwrite: bool = False
    """Replace files of the report's names in `out` that belong to no earlier report."""
    source: SourceConfig | None = None
    """Text or Parquet files with labels; options left out are the model's."""
    shards: str | None = None
    """Folder of shards of the model's map, or of predictions that the model made, in place of `source`."""
    storage_options: Mapping[str, Any] | None = None
    """Options for `shards` and `model` at a URL; a credential is given as ``env:NAME``, the name of a variable."""

    def __post_init__(self) -> None:
        one_of("source", self.source, "shards", self.shards)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig(ExecutionConfig):
    """Execution of a job's tasks; no setting here changes the bytes of the result."""

    resume: bool = True
    """Continue an interrupted run."""
    progress: bool = True
    """Report progress on standard error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobConfig(Settings):
    """Content of a job file: featurize, train, predict and evaluate runs, and their execution.

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
    """Training, after all featurize runs."""
    predict: tuple[PredictConfig, ...] = ()
    """Runs of predict, in order."""
    evaluate: tuple[EvaluateConfig, ...] = ()
    """Runs of evaluate, in order."""
    run: RunConfig = field(default_factory=RunConfig)
    """Execution of the tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighborsConfig(Settings):
    """One run of `dkfeat.neighbors.search` into a folder."""

    out: str
    """Target: a folder, or its URL. Queries that are files are first featurized into a folder beside it, with -queries
    after its name."""
    n_neighbors: Positive = 10
    """Rows found for each query."""
    rerank: Positive | None = None
    """Compare this many rows exactly with each query, such as 100; needs the source of SHARDS. Left out: similarities
    are estimated from codes."""
    method: Literal["exact", "graph"] = "exact"
    """Without QUERIES: compare each row with all, or make an approximate graph by bands of codes and neighbours of
    neighbours, which is much faster from 100,000 rows on."""
    source: str | tuple[str, ...] | None = None
    """Files from which SHARDS were made, to compare rows exactly. Repeatable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicatesConfig(Settings):
    """One search of `dkfeat.neighbors.duplicates`."""

    out: str
    """Folder or URL for the pairs and groups; all workers see a folder. An interrupted search is continued."""
    threshold: float = 0.8
    """Similarity from which two rows are duplicates, above 0 and at most 1."""
    verify: Literal["codes", "exact"] = "codes"
    """Compare candidates by their codes, or by the exact kernel of their rows, which are read again from SOURCE."""
    source: tuple[str, ...] = ()
    """Source from which the shards were made: a path, glob or URL; with ``--verify exact``. Repeatable."""
    keep_earlier: bool = False
    """Keep all rows that an earlier search into the same folder kept, also if new rows join their groups."""


def load_config(path: str | Path) -> JobConfig:
    """Read a job file.

    Parameters
    ----------
    path : str or Path
        YAML file of plain values.

    Raises
    ------
    ConfigError
        If the file cannot be read, is not YAML of plain values, repeats a key, or holds settings
        that `JobConfig.from_mapping` rejects. The message starts with the file's name.
    """
    content = read_yaml(path, "a job file")
    with errors_at(str(path)):
        return JobConfig.from_mapping(content)
