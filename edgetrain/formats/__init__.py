"""How values are stored: what every other room asks instead of knowing it."""
