"""Random Maclaurin features: the map, the series of its kernels, and products with random signs."""
