"""The commit protocol: begin a batch, publish shards, commit once, and maintain what is committed."""
