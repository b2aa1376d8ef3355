"""Table 9 of the Low-Memory Training report: how DynamicConv is rewired, and what it comes to.

    python -m benchmarks.rewirings

At each density the report multiplies the fraction of weights that a rewiring moves, and how often
it happens. The table gives the nonzeros moved in its 50,000 updates.
"""

from collections.abc import Iterator

from edgetrain.sparse import DSR
from edgetrain.sparse.dsr import FRACTION
from tests.twins import due

# Density -> (multiplier of the fraction, multiplier of the frequency).
TABLE9 = {
    0.5: (4.0, 0.125),
    0.4: (4.0, 0.125),
    0.3: (4.0, 0.125),
    0.2: (2.0, 0.25),
    0.1: (1.0, 0.5),
    0.05: (0.5, 0.5),
}
UPDATES = 50_000  # of the report's training
HEAD = (
    "| density | report: fraction times | frequency times | moved at once, of the weights | "
    "of the nonzeros | rewirings | moved in all, of the nonzeros |",
    "|---|---|---|---|---|---|---|",
)


def rewiring(density: float) -> DSR:
    """The report's rewiring of DynamicConv at one density of Table 9."""
    fraction, frequency = TABLE9[density]
    return DSR(fraction=FRACTION * fraction, long_frequency=frequency)


def lines() -> Iterator[str]:
    """The table."""
    yield from HEAD
    for density, multipliers in TABLE9.items():
        method = rewiring(density)
        assert method.fraction is not None
        times = sum(due(method, step, UPDATES) for step in range(1, UPDATES + 1))
        share = method.fraction / density
        yield (
            f"| {density} | {multipliers[0]:g} | {multipliers[1]:g} | {method.fraction:.2%} | "
            f"{share:.1%} | {times} | {share * times:.0%} |"
        )


if __name__ == "__main__":
    print("\n".join(lines()))
