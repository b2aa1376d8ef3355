"""Torch's optimizers by the engine's names."""
