"""A run's directory: its lock, its checkpoints, its state, and how a run goes on from them."""
