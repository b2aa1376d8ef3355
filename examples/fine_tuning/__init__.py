"""Fine-tuning on pictures at three budgets: the head, the biases, the last block."""
