"""Building blocks of kernels: numbers, vectors, functions, rows. None of it is a kernel."""
