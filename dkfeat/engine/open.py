"""First step of a run: open its source and its target, and read the settings that exist there and at `like`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Literal

from dkfeat.engine.memory import check_memory, hold_rows
from dkfeat.engine.progress import Progress, ProgressState
from dkfeat.engine.runners.open import LazyRunner
from dkfeat.errors import ConfigError, ShardError, SourceNotFoundError
from dkfeat.filesystems.urls import is_url
from dkfeat.sources.base import Source
from dkfeat.sources.find import check_contents
from dkfeat.store.commit.begin import check_target, hold
from dkfeat.store.manifest.batch_plan import OTHER_TARGET
from dkfeat.store.manifest.metadata import MODEL_FILE, kind_of, newest_manifest, read_spec, spec_conflict_remedy
from dkfeat.store.manifest.model_folder import open_model_folder, parse_model_file, read_model_file
from dkfeat.store.outputs import check_outside
from dkfeat.store.shards.codec import text_files
from dkfeat.store.shards.columns import LINES
from dkfeat.store.storage import open_storage
from dkfeat.store.storage.base import DATA, SPEC, Lock, Storage, faults_as
from dkfeat.validation import check_choice

if TYPE_CHECKING:
    from distributed import Client

    from dkfeat.blocks import SourceFile
    from dkfeat.config import ExecutionConfig
    from dkfeat.engine.runners.base import Runner


@dataclass(frozen=True, slots=True)
class Target:
    """Location of a data set to write, with the options of its storage and the policy of a run into it.

    Functions with the parameter `target` take a path or URL, which is a target with default options, or a `Target`.

    Examples
    --------
    >>> import dkfeat
    >>> dkfeat.Target("s3://bucket/features", storage_options={"anon": False}, on_changed_source="keep")
    Target(urlpath='s3://bucket/features', resume=True, on_changed_source='keep')
    """

    urlpath: str | PathLike[str]
    """Folder of the data set, or its URL in an object store."""
    storage_options: Mapping[str, Any] | None = field(default=None, kw_only=True, repr=False, hash=False)
    """Options for a URL: those of fsspec, and ``retry_seconds`` and ``exclusive_create``, see
    ``dkfeat.store.storage.object_store.ObjectStorage``. A `like` given by URL is read with them too. They may hold
    secrets, so they are neither shown nor stored."""
    resume: bool = field(default=True, kw_only=True)
    """Continue an interrupted run. If False, an interrupted run is an error."""
    on_changed_source: Literal["raise", "keep"] = field(default="raise", kw_only=True)
    """Action if a committed source file has changed or is gone. "raise" ends the run before it begins. "keep" leaves
    the rows of that file as committed, whatever its content now, and continues with new files; use it for sources that
    are moved away after the commit. The log and ``run["changed_sources"]`` of the manifest name some of them. Features
    are never replaced: to featurize a changed file, give it another name or choose another target."""

    def __post_init__(self) -> None:
        as_path(self.urlpath, "target")
        check_choice(self.on_changed_source, "on_changed_source", ("raise", "keep"))

    @property
    def path(self) -> str:
        """The location as text."""
        return fspath(self.urlpath)

    def open(self, *, beside: object = None) -> Storage:
        """Open the storage; options with a path are an error, unless they are for the URL `beside`."""
        are_for_other = beside is not None and not is_url(self.path) and is_url(as_path(beside, "like"))
        return open_storage(self.path, None if are_for_other else self.storage_options)


def as_target(target: object) -> Target:
    """Return a target for a path or URL; a `Target` is returned unchanged, anything else is a `ConfigError`."""
    return target if isinstance(target, Target) else Target(as_path(target, "target"))


def as_path(path: object, name: str) -> str:
    """Convert the path or URL of the setting `name` to text; anything else is a `ConfigError`."""
    if isinstance(path, str | PathLike) and isinstance(text := fspath(path), str):
        return text
    raise ConfigError(f"{name}={path!r:.100}, but it must be a path or a URL")


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Where a run writes, where its tasks run, and where it reports; open until the end of the run."""

    storage: Storage
    """Storage of the target."""
    policy: Target
    """Policy of the run."""
    lock: Lock
    """Lock of the target."""
    runners: LazyRunner
    """Runner, opened at its first use."""
    reporter: Progress
    closing: ExitStack
    """Closed at the end of the run, after the runner and before the lock is released."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """Source of a run, and the settings that it follows, each with the name to use in messages."""

    source: Source
    """Source as the caller passed it."""
    files: tuple[SourceFile, ...]
    """Files of the source, as they were listed."""
    new_files: tuple[SourceFile, ...] = ()
    """Those of them that the target has not committed."""
    number: int = 0
    """Number of the target's newest manifest; 0 if nothing is committed."""
    target: tuple[str, Mapping[str, Any]] | None = None
    """Name and spec of the target, if it has one; every setting must agree with it."""
    like: tuple[str, Mapping[str, Any]] | None = None
    """Name and spec of `like`; every setting but blocksize and layout must agree with it."""
    like_remedy: str = "give another `like`"
    """Advice in messages about other settings than those of `like`."""
    folders: tuple[Storage, ...] = ()
    """Storages that may hold the landmarks of these maps."""
    remedy: str = OTHER_TARGET
    """Advice in messages about a target with other settings."""
    run: Context = field(default=None)  # type: ignore[assignment]  # the steps of a run have one
    """Context of a run; None if nothing is run."""


@contextmanager
def open_run(
    source: Source,
    target: object,
    *,
    kind: str = "features",
    like: str | PathLike[str] | None = None,
    client: Client | ExecutionConfig | Runner | None = None,
    progress: bool | Callable[[ProgressState], object] | Progress = True,
) -> Iterator[Opened]:
    """Open a source, lock a target for the ``with`` block, since a scan may take hours, and read existing settings.

    Parameters
    ----------
    source : Source
    target : str, path or Target
        The target must be usable, and separate from the source.
    kind : str
        What it holds, see `kind_of`.
    like : str, path or None
        Folder of shards or of a model.
    client
        As for `dkfeat.featurize`, or a runner that is open, and stays open.
    progress
        As for `dkfeat.featurize`, or a `Progress`.

    Raises
    ------
    ConfigError
        If the target holds something of another kind, or lies in a data set, a model or the like.
    CommitError, TargetBusyError, ShardError
        If the target cannot be used.
    """
    to = as_target(target)
    storage = to.open(beside=like)
    check_outside(to.path, to.storage_options if is_url(to.path) else None, kind=kind)
    files = () if source.in_memory else tuple(source.files(checks=False))
    storage.keep_apart(files, source.patterns)
    storage.check_writable()
    check_target(storage)
    reporter = progress if isinstance(progress, Progress) else Progress(progress)
    with hold(storage) as lock, ExitStack() as closing, LazyRunner(client) as runners:
        context = Context(storage=storage, policy=to, lock=lock, runners=runners, reporter=reporter, closing=closing)
        if source.in_memory:
            source = hold_rows(source, runners)
            files = source.files()
        opened = read_existing(source, files, storage, like, to.storage_options)
        if source.kind != "shards" and not source.in_memory:
            check_contents(opened.new_files, source.storage_options)
        yield replace(opened, run=context)


def read_existing(
    source: Source,
    files: Sequence[SourceFile],
    storage: Storage | None = None,
    like: str | PathLike[str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Opened:
    """Read the specs of a target and of `like`, if they exist; the options are for `like` at a URL."""
    for path, pattern in (
        zip(source.urlpath, source.patterns, strict=not source.in_memory) if source.kind == "parquet" else ()
    ):
        kind = None
        with suppress(ConfigError):  # a URL that cannot be a target
            kind = kind_of(folder := open_model_folder(path, source.storage_options)) if path != pattern else None
        if kind == "features" and read_spec(folder)["output"]["layout"] == "codes":
            raise ConfigError(
                f"{path} holds codes, which are no columns of a source; give the rows they were made from"
            )
        if kind == LINES:
            ending = (*text_files(folder), "part.*")[0].partition(".")[2]
            raise ConfigError(
                f"{path} holds lines of text, whose numbers alone are in {DATA}/; give '{path}/*.{ending}'"
            )
    opened = Opened(source=source, files=tuple(files), new_files=tuple(files))
    if storage is not None:
        spec, remedy = binding_spec(storage)
        opened = replace(opened, folders=(storage,), remedy=remedy)
        if spec is not None:
            opened = replace(opened, target=(storage.url, spec))
            if (manifest := newest_manifest(storage)) is not None:
                check_memory(storage.url, manifest, files)
                opened = replace(opened, new_files=manifest.new_files(files), number=manifest.number)
    if like is None:
        return opened
    taken = as_path(like, "like"), like_spec(like, options)
    return replace(opened, like=taken, folders=(*opened.folders, like_storage(like, options)))


def binding_spec(storage: Storage) -> tuple[dict[str, Any] | None, str]:
    """Return the spec that a run into `storage` must follow, if any, and the advice for a run with other settings."""
    with faults_as(ShardError, f"{storage.url} cannot be read"):
        spec = None if storage.size(SPEC) is None else read_spec(storage)
        remedy = OTHER_TARGET if spec is None else spec_conflict_remedy(storage)
    return (None, OTHER_TARGET) if remedy is None else (spec, remedy)


def like_spec(like: str | PathLike[str], options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Read the settings of a folder of shards or of a model: a mapping with ``map``, ``input`` and any ``encoder``.

    Raises
    ------
    SourceNotFoundError
        If the folder is neither, or its first run has planned no shards yet.
    """
    storage = like_storage(like, options)
    spec, _ = binding_spec(storage)
    if spec is not None:
        return spec
    model = f"{storage.url}/{MODEL_FILE}"
    with faults_as(ShardError, f"{model} cannot be read"):
        text = read_model_file(open_model_folder(like, options))
        has_spec = storage.size(SPEC) is not None
    if text is not None:
        facts = parse_model_file(text, model)
        if isinstance(facts.get("map"), dict) and isinstance(facts.get("input"), dict):
            return {key: facts[key] for key in ("map", "input", "encoder") if key in facts}
        raise ShardError(f"{model} does not say which map and input its model was trained on; train it again")
    where = fspath(like)
    if has_spec:
        raise SourceNotFoundError(
            f"like={where!r}: nothing was made there yet, so its settings may still change; run featurize there first"
        )
    raise SourceNotFoundError(
        f"like={where!r} is neither a folder of shards ({SPEC} is missing) nor a model ({MODEL_FILE} is missing)"
    )


def like_storage(like: str | PathLike[str], options: Mapping[str, Any] | None = None) -> Storage:
    """Open the storage of a folder of shards or of a model."""
    folder = as_path(like, "like")
    return open_storage(folder, options if is_url(folder) else None)


def with_bad_rows(source: Any, on_bad_row: str | None = None, max_bad_rows: float | str | None = None) -> Any:
    """Return a source with other settings for bad rows; None leaves a setting, and shards have no bad rows.

    Raises
    ------
    ConfigError
        For a value other than "raise" and "quarantine", or if the source does not support quarantine.
    """
    check_choice(on_bad_row, "on_bad_row", (None, "raise", "quarantine"))
    if getattr(source, "can_quarantine", False):
        given = {"on_bad_row": on_bad_row, "max_bad_rows": max_bad_rows}
        return source.replaced(**{name: value for name, value in given.items() if value is not None})
    if on_bad_row == "quarantine":
        kind = getattr(source, "kind", "shards")
        raise ConfigError(f"on_bad_row='quarantine' is not supported for sources of kind {kind!r}; leave it out")
    return source
