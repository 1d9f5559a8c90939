"""Stochastic gradient descent of linear models: rows, losses and steps."""
