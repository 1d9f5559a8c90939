"""Stochastic gradient descent over shards: rows, epochs, checkpoints and parallel training."""
