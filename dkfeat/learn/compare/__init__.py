"""Comparison of feature maps: the public function, its fits, and the result with its tables."""
