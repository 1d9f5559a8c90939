"""Sources and targets from the paths and URLs of callers, and the policy of a run into a target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Literal

from dkfeat.deprecation import moved_parameters
from dkfeat.errors import ConfigError
from dkfeat.filesystems.urls import is_url
from dkfeat.sources.base import Source
from dkfeat.sources.formats import as_source
from dkfeat.store.commit.target import check_target
from dkfeat.store.outputs import check_place
from dkfeat.store.storage import open_storage
from dkfeat.store.storage.base import Storage
from dkfeat.validation import check_choice

if TYPE_CHECKING:
    from dkfeat.blocks import SourceFile


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
    `dkfeat.store.storage.object_store.ObjectStorage`. A `like` given by URL is read with them too. They may hold
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
        return open_location(self.path, self.storage_options, beside=beside)


def as_target(target: object) -> Target:
    """Return a target for a path or URL; a `Target` is returned unchanged, anything else is a `ConfigError`."""
    return target if isinstance(target, Target) else Target(as_path(target, "target"))


def as_path(path: object, name: str) -> str:
    """Convert the path or URL of the setting `name` to text; anything else is a `ConfigError`."""
    if isinstance(path, str | PathLike) and isinstance(text := fspath(path), str):
        return text
    hint = "; since 0.2 the target stands before the map: (source, target, map)" if hasattr(path, "transform") else ""
    raise ConfigError(f"{name}={path!r:.100}, but it must be a path or a URL{hint}")


def open_location(folder: str, options: Mapping[str, Any] | None, *, beside: object = None) -> Storage:
    """Open the storage at a path or URL; options with a path are an error, unless they are for the URL `beside`."""
    if beside is not None and not is_url(folder) and is_url(as_path(beside, "like")):
        options = None
    return open_storage(folder, options)


def open_target(target: Target, source: Source, *, beside: object = None) -> tuple[Storage, tuple[SourceFile, ...]]:
    """Open a target for writing, and list the source; the target must be usable, and separate from the source.

    Raises
    ------
    ConfigError
        If the target is a model, or lies in a data set or a model.
    """
    storage = target.open(beside=beside)
    check_place(target.path, "a data set", target.storage_options if is_url(target.path) else None)
    files = tuple(source.files())
    storage.keep_apart(files, source.patterns)
    storage.check_writable()
    check_target(storage)
    return storage, files


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


TARGET_PARAMETERS = {
    "target_options": "target=dkfeat.Target(urlpath, storage_options=...)",
    "resume": "target=dkfeat.Target(urlpath, resume=...)",
    "on_changed_source": "target=dkfeat.Target(urlpath, on_changed_source=...)",
}
"""Former keywords of runs that are now fields of `Target`, as for `dkfeat.deprecation.moved_parameters`."""

BAD_ROW_PARAMETERS = {
    name: f"the option of the source, such as dkfeat.LibsvmSource(urlpath, {name}=...)"
    for name in ("on_bad_row", "max_bad_rows")
}
"""Former keywords of runs that are now options of sources."""


def move_to_target(arguments: dict[str, Any], old: Mapping[str, Any]) -> None:
    """Move former keywords of a run into its target, if it has one."""
    fields = {
        "storage_options" if name == "target_options" else name: old[name] for name in old.keys() & TARGET_PARAMETERS
    }
    if fields and arguments.get("target") is not None:
        arguments["target"] = replace(as_target(arguments["target"]), **fields)


def move_to_source(arguments: dict[str, Any], old: Mapping[str, Any]) -> None:
    """Move former keywords of a run into its target and its source."""
    move_to_target(arguments, old)
    options = {name: old[name] for name in BAD_ROW_PARAMETERS if old.get(name) is not None}
    if options:
        source = as_source(arguments["source"], arguments.pop("storage_options", None))
        arguments["source"] = with_bad_rows(source, **options)


run_parameters = moved_parameters(move_to_source, {**BAD_ROW_PARAMETERS, **TARGET_PARAMETERS})
"""Decorator that lets a run of a source into a target accept its former keywords."""

target_parameters = moved_parameters(move_to_target, TARGET_PARAMETERS)
"""Decorator that lets a run into a target accept its former keywords."""
