"""Four commands of one's own from a net of ten words, by its file alone."""
