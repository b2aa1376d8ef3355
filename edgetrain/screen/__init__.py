"""What is shown of compiling and training, in the shell and in Python: tables, progress, waiting,
and streams that may be closed."""
