"""Data sources: samples by index, written into the caller's buffers."""
