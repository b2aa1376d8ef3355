"""What kernels are written in: numbers, vectors, functions, rows; none of it is a kernel."""
