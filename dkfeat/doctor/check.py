"""One thing that was looked at, and how it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Check", "State"]

State = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What was found of one thing."""

    name: str
    """The thing: a word or two, the same in every run."""
    state: State
    """"warn": runs work, but slower or with less safety than they could; "fail": runs would end in an error."""
    found: str
    """What was found, for people."""
    to_do: str = ""
    """What to do, unless all is well."""
    exit_code: int = 0
    """Exit status that a run would end with, of a check that failed."""
