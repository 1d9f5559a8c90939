"""LIBSVM text as a source: parsing, scanning and locating of errors."""
