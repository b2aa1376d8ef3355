"""Output of compiling and training, in the shell and in Python: tables, progress, waiting messages,
and streams that may be closed."""
