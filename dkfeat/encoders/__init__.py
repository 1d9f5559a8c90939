"""Encoders: estimators that turn the rows of tables into sparse rows of non-negative coordinates, for feature maps."""
