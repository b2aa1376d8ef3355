"""torch losses, by the engine's names."""
