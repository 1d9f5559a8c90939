"""Parquet files as a source: schema, filters, batches and bad rows."""
