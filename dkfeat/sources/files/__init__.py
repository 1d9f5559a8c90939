"""Input files: lookup by path, glob or URL, decompression, and reading by lines."""
