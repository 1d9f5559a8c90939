"""Checks of ``dkfeat doctor``: the installation, this machine, its compiled loops, stores and clusters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Check:
    """Result of one check."""

    name: str
    """Subject of the check in one or two words, the same in every run."""
    state: State
    """"warn": runs work, but slower or less safely than they could; "fail": runs would end in an error."""
    found: str
    """Result as a sentence for the user."""
    to_do: str = ""
    """Advice; empty if there is nothing to do."""
    exit_code: int = 0
    """Exit status of a run that fails for this reason; 0 unless `state` is "fail"."""
