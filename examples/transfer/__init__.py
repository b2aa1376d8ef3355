"""Learn four commands of your own from a net of ten words, using only its file."""
