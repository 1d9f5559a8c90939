"""Existing specs, which a run must follow: that of its target, and that of shards or of a model it is to be like."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from typing import Any

from dkfeat.engine.arguments import as_path, open_place
from dkfeat.errors import DkfeatError, ShardError, SourceNotFoundError
from dkfeat.io.metadata import read_spec, ways_out
from dkfeat.io.model_places import MODEL_FILE, model_place, read_facts
from dkfeat.io.plans import OTHER_TARGET
from dkfeat.io.remote import is_url, shown_url
from dkfeat.io.storage import SPEC, Storage, open_storage
from dkfeat.io.strict_json import parse_object

__all__ = ["binding_spec", "has_binding_spec", "like_spec", "like_storage", "target_spec"]


def target_spec(storage: Storage) -> dict[str, Any] | None:
    """Spec of the data set at `storage`, or None if there is none yet."""
    try:
        return None if storage.size(SPEC) is None else read_spec(storage)
    except DkfeatError:
        raise
    except OSError as fault:
        message = f"{storage.url} cannot be read: {fault.strerror or fault}"
        raise ShardError(message) from fault


def binding_spec(storage: Storage) -> tuple[dict[str, Any] | None, str]:
    """Spec that a run into `storage` must follow, or None, and what to do where it asks for another."""
    spec = target_spec(storage)
    try:
        remedy = OTHER_TARGET if spec is None else ways_out(storage)
    except OSError as fault:
        message = f"{storage.url} cannot be read: {fault.strerror or fault}"
        raise ShardError(message) from fault
    return (None, OTHER_TARGET) if remedy is None else (spec, remedy)


def has_binding_spec(target: str | PathLike[str], options: Mapping[str, Any] | None = None) -> bool:
    """Whether runs into a target must follow a spec, and so find a feature map there."""
    return binding_spec(open_place(as_path(target, "target"), options))[0] is not None


def like_spec(like: str | PathLike[str], options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Read the settings of a folder of shards or of a model, under the keys ``map`` and ``input``.

    Raises
    ------
    SourceNotFoundError
        If the folder is neither, or of shards of which none was planned yet.
    """
    storage = like_storage(like, options)
    spec, _ = binding_spec(storage)
    if spec is not None:
        return spec
    model, text = f"{storage.url}/{MODEL_FILE}", _model_text(like, storage, options)
    if text is not None:
        facts = parse_object(text, model)
        if isinstance(facts.get("map"), dict) and isinstance(facts.get("input"), dict):
            return {"map": facts["map"], "input": facts["input"]}
        message = f"{model} does not say which map and input its model was trained on; train it again"
        raise ShardError(message)
    where = shown_url(fspath(like))
    if target_spec(storage) is not None:
        message = (
            f"like={where!r}: nothing was made there yet, so its settings may still change; run featurize there first"
        )
        raise SourceNotFoundError(message)
    message = f"like={where!r} is neither a folder of shards ({SPEC} is missing) nor a model ({MODEL_FILE} is missing)"
    raise SourceNotFoundError(message)


def _model_text(like: str | PathLike[str], storage: Storage, options: Mapping[str, Any] | None) -> bytes | None:
    try:
        return read_facts(model_place(like, options))
    except DkfeatError:
        raise
    except OSError as fault:
        message = f"{storage.url}/{MODEL_FILE} cannot be read: {fault.strerror or fault}"
        raise ShardError(message) from fault


def like_storage(like: str | PathLike[str], options: Mapping[str, Any] | None = None) -> Storage:
    """Storage of a folder of shards or of a model."""
    place = as_path(like, "like")
    return open_storage(place, options if is_url(place) else None)
