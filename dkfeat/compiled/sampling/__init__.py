"""Consistent weighted sampling of sparse rows, and its packed codes."""
