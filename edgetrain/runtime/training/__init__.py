"""The training loop and what it calls: epochs, evaluation, metrics, callbacks, signals."""
