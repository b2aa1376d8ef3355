"""Rungs of the ladder that are taken on request alone: what `--allow` knows."""

ROWS = "rows"

ALLOWED = {
    "slices": "the classes behind a model's last layer, some at a time",
    "attention": "scores of attention, a block of keys at a time",
    ROWS: "gradients of embeddings by the rows that a minibatch touches",
}
