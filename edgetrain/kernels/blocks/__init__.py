"""Block formats: 8 bits for saved values, groups of 8 or 4 bits for frozen weights."""
