"""Small models with various losses, each compared with the same loss in torch."""
