"""Parquet shards: encoding, sealing, decoding and reading."""
