"""Random Maclaurin features for dot-product kernels and their compositions."""
