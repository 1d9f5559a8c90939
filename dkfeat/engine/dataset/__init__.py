"""Committed data sets opened for reading: rows, batches, shuffling, Dask arrays."""
