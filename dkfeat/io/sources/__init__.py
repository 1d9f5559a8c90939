"""Sources of rows: the contract, the options that files share, and committed shards as a source."""
