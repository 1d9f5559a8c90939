"""Evaluation of predictions: the public function, counts of rows, and the result with its page."""
