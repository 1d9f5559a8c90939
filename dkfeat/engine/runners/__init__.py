"""Runners of tasks: threads, processes and distributed clients."""
