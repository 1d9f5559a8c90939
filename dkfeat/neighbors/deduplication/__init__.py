"""Stages of the search for duplicates, and the files that they leave to each other."""
