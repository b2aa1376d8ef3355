"""From a model file to the forward graph to train: parameters, adapters, sparse weights, loss."""
