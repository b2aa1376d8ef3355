"""The cache of machine code: its sources, its files, and how it is loaded."""
