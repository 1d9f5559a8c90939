"""Searches by bands of codes, for duplicates and for graphs: stages, and the files that they leave to each other."""
