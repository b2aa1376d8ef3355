"""The command line's options, their types and values."""
