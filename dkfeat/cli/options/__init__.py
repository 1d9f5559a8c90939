"""Groups of command-line options that commands share."""
