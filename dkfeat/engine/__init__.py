"""Joins sources, maps and shards on Dask: the only layer, with those above it, that knows Dask."""
