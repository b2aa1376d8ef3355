"""Copies samples from sources and callers into the arena's staging buffers."""
