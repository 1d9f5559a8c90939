"""Data sets at rest: storages, shards, manifests, and the commit protocol."""
