"""Compiled loops: arithmetic on arrays that their callers have checked."""
