"""Runs on Dask, from sources through maps to shards; no lower layer imports Dask."""
