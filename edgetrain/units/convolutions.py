"""Algorithms of convolutions that `--convolutions` knows."""

AUTO, DIRECT = "auto", "direct"
CONVOLUTIONS = (AUTO, DIRECT)
