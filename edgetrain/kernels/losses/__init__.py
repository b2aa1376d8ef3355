"""Losses and their gradients, one file each; what they share is in sums.py."""
