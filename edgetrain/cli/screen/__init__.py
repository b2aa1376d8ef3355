"""What is shown: tables, drawings, progress, waiting, and streams that may be closed."""
