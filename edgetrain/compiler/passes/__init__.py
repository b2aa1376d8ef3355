"""Graph passes, one per file; pipeline.py lists them in order."""
