"""Normalisation over the batch, over layers and groups, over neighbouring channels."""
