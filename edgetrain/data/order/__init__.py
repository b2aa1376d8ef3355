"""The order of samples: shuffling, minibatches, held-out samples."""
