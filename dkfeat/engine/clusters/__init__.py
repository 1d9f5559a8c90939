"""Clusters that a run starts: worker processes of this machine, or a cluster of SLURM."""
