"""Runs on Dask: sources, maps and shards joined; no lower layer imports Dask."""
