"""The cache of machine code: sources, files, and loading."""
