"""Torch's schedules by the engine's names."""
