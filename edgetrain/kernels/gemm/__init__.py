"""Products of matrices: plain, in tiles, without tiles, with frozen weights in groups."""
