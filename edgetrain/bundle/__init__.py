"""Writes a Program and its kernels as a C library for one processor."""
