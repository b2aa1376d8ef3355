"""The training loop: epochs, evaluation, metrics, callbacks, signals."""
