"""Linear models on shards: out-of-core training, saved models, prediction and evaluation."""
