"""Chains of stages: dynamic programming for every number of bytes at once."""
