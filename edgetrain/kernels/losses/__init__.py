"""Losses beyond those of kernels/loss.py, one file each; their contract is the same."""
