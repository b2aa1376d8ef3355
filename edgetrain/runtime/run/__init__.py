"""Run directories: lock, checkpoints, state, and resuming."""
