"""Covariances and variances that the papers prove for Laplace and Maclaurin features."""
