"""The values of `--convolutions`, with their meanings."""

AUTO, DIRECT = "auto", "direct"
CONVOLUTIONS = {AUTO: "faster ones if they pay off; they round differently", DIRECT: "plain sums"}
