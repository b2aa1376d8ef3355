"""Plans: candidates for each microbatch, the frontier of placed plans, and text about them."""
