"""Pictures fine-tuned at three budgets: the head, the biases, the last block."""
