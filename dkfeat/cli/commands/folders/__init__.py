"""Commands that show, check and clean up folders of shards and models."""
