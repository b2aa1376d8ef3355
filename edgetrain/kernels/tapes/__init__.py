"""Decodes and runs the instructions of tapes."""
