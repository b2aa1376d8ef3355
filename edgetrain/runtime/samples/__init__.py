"""Samples on their way from sources and callers into the arena's staging bytes."""
