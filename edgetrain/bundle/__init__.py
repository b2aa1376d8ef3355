"""A Program and the kernels that it uses as a C library for one processor."""
