"""Small models with losses of their own, each beside the same loss in torch."""
