"""Progress of runs: bars, notebook lines and JSON lines."""
