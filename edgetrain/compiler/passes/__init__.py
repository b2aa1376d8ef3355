"""Graph to graph, one pass a file; pipeline.py lists them in order."""
