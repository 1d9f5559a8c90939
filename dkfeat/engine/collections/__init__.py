"""Dask arrays: rows of sources, and Gram matrices."""
