"""Chains of stages: dynamic programming for all memory limits at once."""
