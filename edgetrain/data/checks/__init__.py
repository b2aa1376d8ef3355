"""Checks of values, axes and counts against what a model expects."""
