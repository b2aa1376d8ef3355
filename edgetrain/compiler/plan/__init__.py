"""Plans: candidates of each microbatch, the frontier of those placed, and words about it."""
