"""torch optimizers, by the engine's names."""
