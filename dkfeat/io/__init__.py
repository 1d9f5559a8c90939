"""Bytes to rows and back: sources of rows, the storage they go to, and what is committed there."""
