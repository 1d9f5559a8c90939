"""Second step of a run: resolve its settings, the source's options, the fitted map, and the spec with both."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dkfeat import maps
from dkfeat.blocks import SourceFile
from dkfeat.engine.open import Opened
from dkfeat.engine.progress import Progress
from dkfeat.engine.runners.base import Runner
from dkfeat.engine.scan import check_bad_rows, counted_rows, run_scan, suggesting_quarantine, warn_of_columns
from dkfeat.engine.tasks.job import Job
from dkfeat.engine.tasks.landmarks import fit_encoder, fit_to_rows, load_encoder, load_map
from dkfeat.errors import ConfigError, SpecConflictError
from dkfeat.maps import CLASSES, WEIGHTED
from dkfeat.messages import counted, logger_of
from dkfeat.sources.base import Scan, Source
from dkfeat.store.manifest.batch_plan import OTHER_TARGET
from dkfeat.store.manifest.metadata import FORMAT_OF_TABLES, differences, spec_text
from dkfeat.store.shards.columns import LAYOUTS, schema_of
from dkfeat.store.storage.base import Storage
from dkfeat.validation import check_choice

if TYPE_CHECKING:
    from dkfeat.encoders._base import Encoder
    from dkfeat.encoders._columns import ColumnTable
    from dkfeat.maps import FeatureMap


logger = logger_of(__name__)

PIECE_BYTES = 64 << 20
"""Encoded bytes after which a piece ends, whatever the length of its text."""

_SHOWN = 10
DROPPED = "drop_duplicates"
"""Key that is in the spec of a data set if it is a copy of others without duplicates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """Settings of a run; without a spec while the source must still be read to complete them."""

    opened: Opened
    """Source and target, with the settings that these follow."""
    source: Source
    """Source; its index base, width and label type are known if there is a spec."""
    map: Any = None
    """Feature map, fitted if there is a spec; None for a table, whose tasks need none."""
    layout: str = ""
    """Layout of the features in shards."""
    spec: Mapping[str, Any] = field(default_factory=dict)
    """Plain JSON values of all settings that affect the shards' bytes, and no others; empty if incomplete."""
    schema: Mapping[str, str] = field(default_factory=dict)
    """Columns and types of every shard; empty if incomplete."""
    sidecars: dict[str, bytes] = field(default_factory=dict)
    """Contents, by name, of files beside the spec, other than those of the map and the source's encoder."""
    scan: Scan | None = None
    """Scan of the source's files, if there was one."""
    job: Callable[..., Job] = Job
    """Class of the tasks."""
    stage: str = "featurize"
    """Name of the stage in progress reports."""

    @property
    def needs_landmarks(self) -> bool:
        """True if the map must still be fitted to rows of the source."""
        return self.map._needs_rows and not _is_fitted(self.map)

    @property
    def needs_encoder(self) -> bool:
        """True if the encoder must still be fitted to rows of the source."""
        return self.source.encoder is not None and not self.source.is_encoded

    @property
    def needs_rows(self) -> bool:
        """True if the encoder or the map must still be fitted to rows of the source."""
        return self.needs_landmarks or self.needs_encoder

    @property
    def runs_in_driver(self) -> bool:
        """True if the tasks run in the driver, whose memory is not limited."""
        return getattr(getattr(self.job, "func", self.job), "run_in_driver", None) is not None

    @property
    def needs_scan(self) -> bool:
        """True if the whole source must be read once, to find unknown options or to count its rows."""
        return self.needs_rows or not self.source.is_resolved


def resolve(opened: Opened, map: FeatureMap | None, layout: str | None, encoder: Any = "auto") -> Resolved:
    """Resolve the settings of a run; a source that does not determine them is read, encoder and map fitted to its rows.

    Raises
    ------
    DkfeatError
        Errors of `inherit` and `complete`, and those of reading the source.
    """
    incomplete = inherit(opened, map, layout, encoder)
    if not incomplete.needs_scan:
        return complete(incomplete)
    runner, reporter = opened.run.runners.get(), opened.run.reporter
    found = scanned(incomplete, runner, reporter)
    if found.scan is None or not found.needs_landmarks:
        return complete(found)
    return complete(found, fit_to_rows(found.map, found.source, found.scan, runner, reporter))


def scanned(incomplete: Resolved, runner: Runner, reporter: Progress) -> Resolved:
    """Read a source once to count its rows and find unknown options, and then the drawn rows of its encoder.

    Raises
    ------
    DkfeatError
        Errors of reading the source, and of a limit on bad rows.
    """
    source, files = incomplete.source, incomplete.opened.files
    with suggesting_quarantine(source):
        scan = counted_rows(source, files) or run_scan(source, files, runner, reporter)
    check_bad_rows(source, scan.n_bad_rows, scan.n_rows + scan.n_bad_rows, scan.first_bad)
    if not scan.n_rows and source.n_features is None:
        logger.warning(
            "the source has no rows, so the data set is made for n_features=%d, and rows of more columns cannot be "
            "added later; pass n_features (--n-features), or featurize a source with rows first",
            scan.n_features,
        )
    source = source if source.is_resolved else source.resolve(scan)
    if incomplete.needs_encoder:
        source = source.replaced(encoder=fit_encoder(source, scan, runner, reporter))
        _check_sets(incomplete.map, source)
        if source.is_table:
            _report_encoder(source.encoder.describe(), reporter)
    return replace(incomplete, source=source, scan=scan)


def _check_sets(map: FeatureMap, source: Source) -> None:
    """Raise ConfigError if the encoder of a table, as far as it is known, makes rows with weights for a map of sets."""
    if map.takes_sets and source.is_table and (weighted := source.encoder.weighted):
        raise ConfigError(
            f"the map {map.name} takes sets, but column {weighted[0]!r} is encoded with weights, by ranks, "
            "or by counts or idf of n-grams; leave the column or the weights out, or use DartFeatures (--map dart)"
        )


def _report_encoder(columns: ColumnTable, reporter: Progress) -> None:
    """Say how many columns of a table are encoded, and warn of those that are left out or seem to be ids."""
    left_out, warnings = columns.left_out, columns.hints
    reporter.note(
        f"encoder: {counted(len(columns) - len(left_out), 'column')} of a table, as `dkfeat plan --scan` shows them; "
        'features_as="columns" (--features-as columns) takes numbers as they are'
    )
    if left_out:
        shown = [f"{column.name!r} ({column.reason})" for column in left_out[:_SHOWN]]
        warnings = [f"{counted(len(left_out), 'column')} left out, such as {', '.join(shown)}", *warnings]
    if warnings:
        logger.warning("; ".join(warnings))


def inherit(opened: Opened, map: FeatureMap | None, layout: str | None = None, encoder: Any = "auto") -> Resolved:
    """Take unset options from the target's spec, then from `like`, then from the files' metadata.

    Every option of the source and parameter of the map with its default value is taken from an existing spec. All
    others must agree with the target's spec, and, except `blocksize` and `layout`, with the spec of `like`.

    Parameters
    ----------
    opened : Opened
    map : FeatureMap or None
        Feature map, fitted or not; it is never changed. None: the map of the existing spec. An unfitted map is cloned,
        and takes the seed of the existing spec if its `random_state` is None.
    layout : str or None
        Shard layout; None: the target's layout, else the map's own.
    encoder : Encoder, "auto" or None
        Encoder, fitted or not; it is never changed. "auto": the encoder of the existing spec if there is one; for a new
        data set `TableEncoder` with the map's seed, if the source has columns of a table, and the map is gcws or dart.

    Returns
    -------
    resolved : Resolved
        Without a spec.

    Raises
    ------
    SpecConflictError
        If the caller's settings differ from existing ones; the message names both values.
    ConfigError
        If there is no map, or it is not a feature map, or the layout is unknown.
    """
    source, target, like = opened.source, opened.target, opened.like
    if target is not None:
        check_has_source(*target)
    if map is not None and not isinstance(map, maps.FeatureMap):
        raise ConfigError(f"map={map!r:.100}, but it must be a feature map ({', '.join(CLASSES)}) or None")
    check_choice(layout, "layout", (None, *LAYOUTS))
    if not (encoder is None or hasattr(type(encoder), "takes_tables") or str(encoder) == "auto"):
        raise ConfigError(
            f"encoder={encoder!r:.100}, but it must be a TableEncoder, ColumnScale or Text, 'auto' or None"
        )
    for named, in_full in ((target, True), (like, False)):
        if named is not None:
            remedy = opened.remedy if in_full else opened.like_remedy
            if "columns" in named[1].get("encoder", ()) and not in_full:
                check_has_columns(source, named[0], remedy)
            source = inherit_source(source, *named, in_full=in_full, remedy=remedy)
            map = inherit_map(map, *named, opened.folders, remedy)
            encoder = inherit_encoder(encoder, *named, opened.folders, remedy)
    if map is None:
        raise ConfigError("no feature map is given; pass one, or `like` with a folder or model whose map is taken over")
    is_new = target is None and like is None
    if layout is None:
        layout = map.layout if target is None else target[1]["output"]["layout"]
    if not _is_fitted(map):
        map._check_params()
    elif source.n_features is None:
        source = source.replaced(n_features=map.n_features_in_)
    is_auto = isinstance(encoder, str)
    if is_auto:
        encoder = source.encoder or (_usual_encoder(source, map) if is_new else None)
    if encoder is not None:
        if is_new and map.takes_sets and encoder.takes_tables and source.may_be_table and source.features is None:
            source = source.replaced(features=tuple(encoder.named) or None)
        seed = getattr(map, "seed_", getattr(map, "random_state", None))
        source = with_encoder(source, opened.files, encoder, seed, is_auto=is_auto)
        _check_sets(map, source)
    elif source.is_table:
        raise ConfigError(
            'features_as="table" reads columns for an encoder, but encoder=None; leave one of them out, or pass '
            'features_as="columns" for columns of numbers as they are'
        )
    if not source.is_resolved:
        source = source.inspect(opened.files)
    name, given = ("", {"label": None}) if like is None else (like[0], like[1]["input"])
    if source.classes is not None and "classes" not in given and given.get("label", "") is not None:
        raise SpecConflictError(f"labels are words, but those of {name} are numbers; convert them to these")
    return Resolved(opened=opened, source=source, map=map, layout=layout)


def complete(incomplete: Resolved, fitted: FeatureMap | None = None) -> Resolved:
    """Complete settings with the results of a pass over the source, and make the spec.

    Parameters
    ----------
    incomplete : Resolved
        Settings known before the pass, with the scan of the source and its files if they need one.
    fitted : FeatureMap or None
        The map, fitted to rows of the source; required if it needs rows.

    Raises
    ------
    SpecConflictError
        If the scanned settings differ from the target's, or the map was fitted to another width.
    ConfigError
        If the map still needs rows, or the settings are too long for a spec.
    """
    source, map = incomplete.source, fitted or incomplete.map
    if not source.is_resolved:
        assert incomplete.scan is not None  # because `needs_scan` is true
        source = source.resolve(incomplete.scan)
    if not _is_fitted(map):
        if map._needs_rows:
            raise ConfigError(
                f"{type(map).__name__} learns from rows of the source; fit it first, or use dkfeat.featurize"
            )
        map = map._cloned().fit_width(source.n_features)
    elif map.n_features_in_ != source.n_features:
        raise SpecConflictError(
            f"n_features={source.n_features:,} is requested, but the map was fitted on {map.n_features_in_:,}"
        )
    spec = _spec(source, map, incomplete.layout)
    if incomplete.opened.target is not None:
        name, existing = incomplete.opened.target
        must_agree(spec, existing, name, incomplete.opened.remedy)
    output = spec["output"]
    schema = schema_of(
        output["layout"],
        output["row_bytes"] if output["layout"] == "codes" else output["n_features_out"],
        source.label_dtype,
        multilabel=source.multilabel,
        query_id=bool(source.query_id),
        weight=source.has_weights,
        kept=source.kept,
        values=output.get("values", True),
    )
    return replace(incomplete, source=source, map=map, spec=spec, schema=schema)


def with_encoder(
    source: Source, files: Sequence[SourceFile], encoder: Encoder, seed: Any = None, *, is_auto: bool = False
) -> Source:
    """Return a source with the options that its files determine, and with an encoder, if it takes such rows.

    If it does not, an error is raised unless `is_auto`. It takes the seed if it has none.
    """
    if not encoder.__sklearn_is_fitted__() and encoder.random_state is None:
        encoder = encoder._cloned().set_params(random_state=seed)
    found = source.replaced(encoder=encoder).inspect(files)
    if found.is_table == encoder.takes_tables:
        return found.replaced(encoder=encoder.fit_texts(found.features)) if found.is_table else found
    if not is_auto:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in encoder.get_params() if name != "random_state")
        wanted = "the columns of a table (Parquet, JSON lines)" if encoder.takes_tables else "rows of numbers"
        raise ConfigError(
            f"encoder={encoder!r:.100} ({flags}) is for {wanted}, but these rows are read as "
            f"{getattr(found, 'features_as', found.kind)}; leave it out"
        )
    return found.replaced(encoder=None)


def _usual_encoder(source: Source, map: FeatureMap) -> Encoder | None:
    """Return an encoder that is not fitted yet if rows of the source are those of a table, as far as options say."""
    is_usual = source.may_be_table and source.n_features is None and map.name in WEIGHTED
    if not (source.is_table or is_usual):
        return None
    from dkfeat.encoders.table import TableEncoder  # late: loads scikit-learn

    return TableEncoder()


def _is_fitted(map: FeatureMap) -> bool:
    return hasattr(map, "n_features_in_")


def _spec(source: Source, map: FeatureMap, layout: str) -> dict[str, Any]:
    if "codes" in (layout, map.layout) and layout not in ("sparse", map.layout):
        raise ConfigError(
            f"layout={layout!r} cannot store the features of {type(map).__name__}; use {map.layout!r} or 'sparse'"
        )
    row_bytes = map.encoded_row_bytes if layout == map.layout else _sparse_row_bytes(map)
    output = {"layout": layout, "n_features_out": map.n_features_out, "row_bytes": row_bytes}
    if layout == "sparse":
        output["values"] = map.layout != "codes"  # the values of one-hot rows are 1 and are left out
    others = {"encoder": source.encoder.to_spec()} if source.is_encoded else {}
    piece_rows = max(1, PIECE_BYTES // row_bytes)
    return make_spec(map.to_spec(), source.to_mapping(), output, piece_rows=piece_rows, **others)


def make_spec(
    map_spec: Mapping[str, Any],
    given: Mapping[str, Any],
    output: Mapping[str, Any],
    *,
    piece_rows: int,
    blocksize: Any = None,
    **others: Any,
) -> dict[str, Any]:
    """Make a spec as plain JSON values; the block size is that of the input `given`, unless there is another."""
    split = {"blocksize": given.get("blocksize") if blocksize is None else blocksize, "max_piece_rows": piece_rows}
    output = {"schema": 1, **output}
    is_table = "encoder" in others or "classes" in given
    spec = {
        "format": FORMAT_OF_TABLES if is_table else 1,
        **others,
        "map": dict(map_spec),
        "input": dict(given),
        "split": split,
        "output": output,
    }
    plain: dict[str, Any] = json.loads(spec_text(spec))  # tuples become lists, as in a spec that is read
    return plain


def _sparse_row_bytes(map: FeatureMap) -> int:
    """Maximum memory of a row's column numbers and values, in bytes."""
    nonzeros = getattr(map, "n_components", map.n_features_out) if map.layout == "codes" else map.n_features_out
    return int(nonzeros) * (8 if map.n_features_out <= 2**31 - 1 else 12)


_OF_ALL_KINDS: tuple[str, ...] = ("n_features", "dtype", "multilabel", "labels", "label_dtype", "classes", "label")
"""Input options that mean the same in every format; the last two are of tables."""


def inherit_source(source: Source, name: str, spec: Mapping[str, Any], *, in_full: bool, remedy: str) -> Source:
    """Take options with default values from a spec; raise an error if the others disagree with it."""
    mappings = (dict(spec["input"]), source.to_mapping(), source.defaults())
    existing, requested, plain = (json.loads(json.dumps(mapping)) for mapping in mappings)
    kind = existing.pop("kind", None)
    if kind != requested.pop("kind"):
        if in_full:
            made = f"{name} was made from another kind of source, {kind!r}, than the requested {source.kind!r}"
            raise SpecConflictError(f"{made}; {remedy}")
        if source.zero_based == "auto":
            raise ConfigError(f"{name} was made from {kind!r}, which has no index base for text; pass zero_based")
        names = _OF_ALL_KINDS if hasattr(source, "label") else _OF_ALL_KINDS[:-2]
        if "label" in names and not source.replaced(label=existing.get("label")).without_absent_label().has_labels:
            names = names[:-1]  # these rows have no such column: their own default may name one
        shared = [key for key in names if key in existing and (key in requested or existing[key])]
        existing = {key: existing[key] for key in shared}
    is_array = source.in_memory and source.n_features is not None
    own = source.row_options | ({"features", "features_as"} if is_array else set())  # dense or sparse, as it is
    taken: dict[str, Any] = {}
    for key, value in existing.items():
        if not in_full and key in own:
            continue
        if not hasattr(source, key):
            raise SpecConflictError(
                f"{name} has the input option {key!r}, which this dkfeat does not know; update dkfeat"
            )
        if requested.get(key) == plain.get(key):
            taken[key] = tuple(value) if isinstance(value, list) else value
        elif requested.get(key) != value and (in_full or key != "blocksize"):
            raise SpecConflictError(
                f"{key}={requested.get(key)!r} is requested, but {name} has {key}={value!r}; leave it out or {remedy}"
            )
    return source.replaced(**taken)


def inherit_row_options(
    source: Source,
    name: str,
    options: Mapping[str, Any],
    label_dtype: str,
    files: Sequence[SourceFile] | None = None,
    *,
    encoder: Encoder | None = None,
    remedy: str,
) -> Source:
    """Take the options and the encoder by which other rows were read, for rows that need no labels.

    Options of labels are not taken. Labels get `label_dtype` unless the source sets another type; a column of labels
    that the source does not name, and its files do not have, is left out. `files` are those of the source, if they were
    listed. `remedy` is offered in an error as the alternative to leaving an option out.

    Raises
    ------
    SpecConflictError
        If the source sets another option than those rows have.
    """
    if encoder is not None and encoder.takes_tables:
        check_has_columns(source, name, remedy)
    left_out, given = source.label_options, source
    if source.label_dtype == "auto":
        source = source.replaced(label_dtype="int64" if options.get("classes") else label_dtype)
    taken = {key: value for key, value in options.items() if key not in left_out}
    if taken:
        source = inherit_source(source, name, {"input": taken}, in_full=False, remedy=remedy)
    if encoder is not None:
        source = source.replaced(encoder=encoder)
    source = source if "label" in left_out else source.without_absent_label(files)
    warn_of_columns(source, files, given, (name, {"input": options}))
    return source


def check_has_columns(source: Source, name: str, remedy: str) -> None:
    """Raise SpecConflictError if a source has no columns for the encoder of other rows, which `name` was made from."""
    if source.kind == "libsvm" or (source.in_memory and source.n_features is not None):
        raise SpecConflictError(
            f"{name} was made from the columns of a table, which arrays and text of LIBSVM do not have; give a table "
            f"or Parquet files with these columns, or {remedy}"
        )


def inherit_map(
    map: FeatureMap | None, name: str, spec: Mapping[str, Any], folders: Sequence[Storage], remedy: str
) -> FeatureMap:
    """Load the spec's map; raise an error if the requested map differs from it."""
    if map is not None:
        must_agree({"map": map.name}, {"map": spec["map"].get("map")}, name, remedy, "map")
    existing = load_map(spec, *folders)
    if map is None:
        return existing
    if not _is_fitted(map):
        asked, knows_given = map.get_params(), "_given_names" in vars(map)
        map = map._cloned()._fit_like(existing)  # as sources, it inherits what it does not set
        kept = {key: value for key, value in map.get_params().items() if repr(value) != repr(asked[key])}
        drawn_or_completed = {"random_state", "kernel_params"}
        listed = ", ".join(f"{key}={value!r}" for key, value in kept.items() if key not in drawn_or_completed)
        if listed and not knows_given:
            logger.warning("%s has %s, which is kept: a parameter at its default counts as not given", name, listed)
    must_agree(json.loads(json.dumps(map.to_spec())), spec["map"], name, remedy, "map")
    return existing


def inherit_encoder(encoder: Any, name: str, spec: Mapping[str, Any], folders: Sequence[Storage], remedy: str) -> Any:
    """Load the spec's encoder; raise an error if the requested encoder differs from it."""
    existing = load_encoder(spec, *folders)
    if not isinstance(encoder, str):
        found = {} if existing is None else {"encoder": existing.to_spec()}
        asked = {} if encoder is None else {"encoder": _asked(encoder, existing)}
        must_agree(asked, found, name, remedy)
    return existing


def _asked(encoder: Encoder, existing: Encoder | None) -> dict[str, Any]:
    """Return the spec of an encoder; one that is not fitted has the values of the existing one where it sets none."""
    if encoder.__sklearn_is_fitted__():
        return encoder.to_spec()
    if existing is None or existing.name != encoder.name:
        return {"encoder": encoder.name}
    spec = existing.to_spec()
    wanted = encoder._cloned().set_params(**encoder._params_like(spec))
    return spec | {"params": wanted._checked_params(), "seed": wanted.random_state}


def must_agree(
    requested: Mapping[str, Any], existing: Mapping[str, Any], name: str, remedy: str, key: str = ""
) -> None:
    """Raise `SpecConflictError` that lists every differing key, if two specs differ."""
    differing = differences(existing, requested, key)
    if differing:
        raise SpecConflictError(
            f"{name} was made with other settings, {'; '.join(differing)}; use the same, leave them out, or {remedy}"
        )


def check_has_source(name: str, spec: Mapping[str, Any]) -> None:
    """Raise `SpecConflictError` if a data set was not made from rows of a source, but copied from other shards."""
    if DROPPED in spec:
        raise SpecConflictError(
            f"{name} is a copy of other shards without duplicates: rows of a source are neither added to it nor "
            f"compared with it; use those shards, or {OTHER_TARGET}"
        )
