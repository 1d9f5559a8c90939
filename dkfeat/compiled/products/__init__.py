"""Products of rows with tables of weights, and the functions applied to them."""
