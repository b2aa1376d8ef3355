"""The values of `--convolutions`."""

AUTO, DIRECT = "auto", "direct"
CONVOLUTIONS = (AUTO, DIRECT)
