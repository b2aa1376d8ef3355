"""Pooling over windows, and resizing."""
