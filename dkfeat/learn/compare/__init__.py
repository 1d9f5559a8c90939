"""Comparison of feature maps by accuracy and cost."""
