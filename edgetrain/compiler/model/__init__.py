"""From the model's file to the forward graph that is trained: what is trained, adapters, sparse
rows, the objective."""
