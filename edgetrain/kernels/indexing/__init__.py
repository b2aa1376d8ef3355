"""Rows taken by index and their gradients, the ends of rows, what lies beyond an edge."""
