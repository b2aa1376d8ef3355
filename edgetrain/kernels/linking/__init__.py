"""Joins objects into shared objects and reads both, so no linker is needed."""
