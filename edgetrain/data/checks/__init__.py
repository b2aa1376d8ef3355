"""Values, axes and counts, held against what a model takes."""
