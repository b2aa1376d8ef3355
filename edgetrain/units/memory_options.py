"""Memory savings that need `--allow`."""

ROWS = "rows"

ALLOWED = {
    "slices": "compute the last layer a few classes at a time",
    "attention": "compute attention a block of keys at a time",
    ROWS: "keep embedding gradients only for rows in the minibatch; same weights in fp32",
}
