"""Parsing of LIBSVM text and decimal numbers."""
