"""Rows taken by index and their gradients, top-k, padding, lengths of segments."""
