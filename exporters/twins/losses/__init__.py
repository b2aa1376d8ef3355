"""Torch's losses by the engine's names."""
