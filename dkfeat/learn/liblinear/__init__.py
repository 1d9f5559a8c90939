"""Linear and kernel machines on rows in memory."""
