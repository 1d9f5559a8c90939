"""Tasks: the work on one split, and the run of a batch of splits."""
