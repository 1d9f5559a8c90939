"""Sources of rows: the contract, the options that files share, and one folder a format."""
