"""Rungs of the ladder that are taken on request alone: what `--allow` knows."""

ALLOWED = {"slices": "the classes behind a model's last layer, some at a time"}
