"""Seconds of sparse convolutions nonzero by nonzero over those by expanded rows, by density.

    python -m benchmarks.sparse_winograd [--rounds 30] [N,C,H,K ...]

ops/winograd.py has its rule from this. One thread; the least processor time of rounds that take
turns. The second table is of what the rule chooses: its speed in that of dense weights, and the
bytes that weights take.
"""

import argparse
import math
from collections.abc import Iterator

from edgetrain.formats import csr
from edgetrain.kernels import targets
from edgetrain.ops.conv import pays_winograd

from .winograd import FORMS, Call, integers_of

DENSITIES = (0.05, 0.1, 0.2, 0.3, 0.5)
SHAPES = [
    (n, c, h, c)
    for c in (32, 64, 128, 256)
    for h in (8, 16, 32)
    for n in (1, 4, 10, 16)
    if c * h <= 2048 and n * h * h * c <= 2**19 and n * h * h >= 128
]
USUAL = ((10, 32, 32, 32), (10, 64, 16, 64), (10, 128, 8, 128))  # of WRN-28-2
ROWS = {"conv_csr": "winograd_csr", "conv_csr_dx": "winograd_csr_dx"}
_DENSE = {"conv_csr": "conv", "conv_csr_dx": "conv_dx", "conv_csr_dw": "conv_dw"}
_ATTRS = dict(sh=1, sw=1, dh=1, dw=1, g=1, ph=1, pw=1)
_SIZES = ("n", "c", "h", "wd", "k", "kh", "kw", "oh", "ow")


def _least(calls: list[Call], rounds: int) -> list[float]:
    found = [math.inf] * len(calls)
    for _ in range(rounds):
        found = [min(old, call.seconds()) for old, call in zip(found, calls, strict=True)]
    return found


def ratio(shape: tuple[int, ...], name: str, density: float, storage: str, rounds: int) -> float:
    """Time of the nonzero-by-nonzero kernel relative to the one that expands rows."""
    target = targets.get(targets.HOST).processor
    pair = [Call(n, integers_of(*shape), storage, target, density) for n in (name, ROWS[name])]
    slow, fast = _least(pair, rounds)
    return slow / fast


def pays(shape: tuple[int, ...], name: str, density: float) -> bool:
    """Whether the rule expands the rows of such a layer.

    For a kernel of dense weights: whether the rule picks Winograd; `density` is ignored.
    """
    integers = integers_of(*shape)
    sizes = {key: integers[key] for key in _SIZES}
    if name not in ROWS.values():
        return pays_winograd(sizes, _ATTRS, name)
    layer = csr.Layer("w", (sizes["k"], sizes["c"], 3, 3), 0, 0)
    count = round(density * layer.size)
    sizes |= {"slots": count, "room": 0, "held": 0}
    return pays_winograd(sizes, _ATTRS | {"nonzeros": count, "chunk": layer.chunk}, name)


def _from(shape: tuple[int, ...], name: str) -> str:
    """The smallest density at which the rule expands rows."""
    found = [percent for percent in range(1, 101) if pays(shape, name, percent / 100)]
    return f"{found[0] / 100:.2f}" if found else "-"


def kernel_lines(shapes=SHAPES, rounds: int = 8) -> Iterator[str]:
    """One row per shape: forward and input gradient, in fp16 and in fp32."""
    columns = " | ".join(f"{form} {d}" for form in ("fp16:", "fp32:") for d in DENSITIES)
    yield f"| batch x channels x size | expanded from | {columns} |"
    yield "|---|---" + "|---:" * (2 * len(DENSITIES)) + "|"
    for shape in shapes:
        n, c, h, _ = shape
        cells = [
            " / ".join(f"{ratio(shape, name, density, storage, rounds):.1f}" for name in ROWS)
            for storage in FORMS
            for density in DENSITIES
        ]
        least = " / ".join(_from(shape, name) for name in ROWS.values())
        yield f"| {n} x {c} x {h} x {h} | {least} | {' | '.join(cells)} |"


def _chosen(shape: tuple[int, ...], name: str, density: float) -> str:
    """The kernel that the rule picks for a product of a sparse weight (density 1: dense)."""
    name = name if density < 1 else _DENSE[name]
    fewer = name.replace("conv", "winograd", 1)
    has = density == 1 or fewer in ROWS.values()
    return fewer if has and pays(shape, fewer, density) else name


def _bytes(shape: tuple[int, ...], density: float) -> float:
    """Bytes of fp16 weight, gradient, momentum and positions, relative to the dense weight's."""
    layer = csr.Layer("w", (shape[3], shape[1], 3, 3), 0, 0)
    count = round(density * layer.size)
    dense = 6 * layer.size
    return (6 * count + count + 4 * (layer.groups + 1)) / dense if density < 1 else 1.0


def layer_lines(shapes=USUAL, rounds: int = 15) -> Iterator[str]:
    """One row per density: mean speed and bytes over the shapes."""
    target = targets.get(targets.HOST).processor
    yield "| density | forward | input | weights | all three | memory |"
    yield "|---|---:|---:|---:|---:|---:|"
    densities = (1.0, *reversed(DENSITIES))
    cells: dict[float, list[list[float]]] = {density: [] for density in densities}
    for shape in shapes:
        calls = [
            Call(_chosen(shape, name, density), integers_of(*shape), "f16", target, density)
            for density in densities
            for name in _DENSE
        ]
        times = _least(calls, rounds)
        dense = [*times[:3], sum(times[:3])]
        for i, density in enumerate(densities):
            one = times[3 * i : 3 * i + 3]
            pairs = zip(dense, [*one, sum(one)], strict=True)
            cells[density].append([*(a / b for a, b in pairs), _bytes(shape, density)])
    for density, rows in cells.items():
        *speeds, size = (math.prod(column) ** (1 / len(rows)) for column in zip(*rows, strict=True))
        row = " | ".join(f"{speed:.2f}" for speed in speeds)
        yield f"| {density:g} | {row} | {100 * size:.0f} % |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("shapes", nargs="*")
    given = parser.parse_args()
    shapes = [tuple(map(int, text.split(","))) for text in given.shapes]
    for line in kernel_lines(shapes or SHAPES, given.rounds):
        print(line, flush=True)
    for line in layer_lines(shapes or USUAL, given.rounds):
        print(line, flush=True)


if __name__ == "__main__":
    main()
