"""Evaluation of models over rows of any number."""
