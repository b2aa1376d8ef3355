"""Values in blocks: 8 bits between forward and backward, groups of 8 or 4 of frozen weights."""
