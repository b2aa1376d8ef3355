"""The values of `--convolutions`, with their meanings."""

AUTO, DIRECT = "auto", "direct"
CONVOLUTIONS = {AUTO: "faster ones where they pay, which round differently", DIRECT: "plain sums"}
