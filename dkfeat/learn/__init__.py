"""Consumers of shards: linear models trained out of core, saved and applied to new rows."""
