"""Commands of the command line; those of one concept share a module."""
