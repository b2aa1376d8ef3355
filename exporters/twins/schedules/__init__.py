"""torch schedules, by the engine's names."""
