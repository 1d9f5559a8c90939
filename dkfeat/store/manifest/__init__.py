"""The metadata of a data set: records, manifest, plan of a batch, spec and sidecar files."""
