"""Variances, bounds and limits that the papers prove, and that only their reproduction needs."""
