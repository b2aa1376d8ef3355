"""Sums, extremes, products and running sums over axes; softmax."""
