"""Clusters started for a run: embedded, SLURM, Kubernetes, SSH."""
