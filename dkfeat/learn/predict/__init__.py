"""Prediction with linear models, into a committed folder of Parquet files or into one file."""
