"""What is looked at by ``dkfeat doctor``: this installation, this machine, and the places that runs would use."""

from __future__ import annotations

from dkfeat.doctor.check import Check, State

__all__ = ["Check", "State"]
