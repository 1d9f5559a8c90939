"""Counter-based random numbers: Philox, the named streams, and distributions drawn from them."""
