"""Seconds of direct convolutions over those of Winograd's, from which ops/conv.py has its rule.

    python -m benchmarks.winograd [--storage f16] [--rounds 30] [N,C,H,K ...]

One thread; the least processor time of rounds that take turns. A row for each convolution: forward,
input gradient, weight gradient.
"""

import argparse
import ctypes
import time
from collections.abc import Iterator

import numpy as np

from edgetrain.formats import FORMATS, csr
from edgetrain.kernels import control, registry, targets
from edgetrain.kernels.cache.load import load
from edgetrain.ops.conv import pays_winograd

SHAPES = [
    (n, c, h, c)
    for c in (16, 24, 32, 64, 128, 256, 512)
    for h in (4, 7, 8, 14, 16, 28, 32)
    for n in (1, 4, 10)
    if c * h <= 4096 and n * h * h * c <= 2**19
]
NAMES = {"conv": "winograd", "conv_dx": "winograd_dx", "conv_dw": "winograd_dw"}
ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
FORMS = ("f16", "f32")
_STORED = {"G": "f32", "I": "u8"}  # whatever the others are
_RNG = np.random.default_rng(0)


def integers_of(n: int, c: int, h: int, k: int) -> dict[str, int]:
    names = "n c h wd k kh kw oh ow sh sw ph pw dh dw g act acc key"
    numbers = (n, c, h, h, k, 3, 3, h, h, 1, 1, 1, 1, 1, 1, 1, 0, 0, 5)
    return dict(zip(names.split(), numbers, strict=True))


def _has_rows(spec) -> bool:
    return any(operand.name == "columns" for operand in spec.operands)


def _layer(integers: dict[str, int]) -> csr.Layer:
    return csr.Layer("w", (integers["k"], integers["c"], 3, 3), 0, 0)


def _pattern(integers: dict[str, int], density: float) -> dict[str, np.ndarray]:
    layer = _layer(integers)
    chosen = _RNG.choice(layer.size, round(density * layer.size), replace=False)
    columns, pointers = csr.encode(layer, np.sort(chosen), 0)
    return {"columns": columns, "pointers": pointers}


class Call:
    """A kernel with its own operands.

    Args:
      density: for a kernel of compressed rows.
    """

    def __init__(
        self, name: str, integers: dict[str, int], storage: str, target, density: float = 1.0
    ) -> None:
        spec = registry.variants(name)[0].spec
        self.pattern = _pattern(integers, density) if _has_rows(spec) else {}
        if self.pattern:
            integers = integers | {
                "slots": self.pattern["columns"].size,
                "chunk": _layer(integers).chunk,
            }
        values = {o.name: integers.get(o.name, 0) for o in spec.operands}
        absent = ("bias", "stat", "gamma", "beta")
        values |= {o: -1 for o in absent if o in values}
        storages = {v: _STORED.get(v, storage) for v in spec.variables}
        kernel = registry.choose(name, values, storages, target)
        symbol = kernel.symbol(storages)
        self.entry = ENTRY(load({symbol: lambda: kernel.object(storages, target)})[symbol])
        scratch = kernel.spec.scratch_nbytes(values, 1, target.lanes)
        extents = kernel.spec.extents(values, storages, 1, target.lanes)
        self.memory = np.zeros(sum(extents.values()) + scratch + 64 * (len(extents) + 3), np.uint8)
        self.base = -(-self.memory.ctypes.data // 64) * 64
        at, words = 0, []
        for operand in kernel.spec.operands:
            if operand.mode == "t":
                words += [at, scratch]
                at += -(-scratch // 64) * 64
            elif operand.name in extents:
                words.append(at)
                self._fill(operand, storages, at, extents[operand.name])
                at += -(-extents[operand.name] // 64) * 64
            else:
                words.append(values[operand.name])
        self.words, self.scratch = np.array(words, np.int64), scratch

    def _fill(self, operand, storages, at: int, nbytes: int) -> None:
        dtype = FORMATS[storages.get(operand.storage, operand.storage)].dtype
        start = self.base - self.memory.ctypes.data + at
        part = self.memory[start : start + nbytes].view(dtype)
        if operand.name in self.pattern:
            numbers = self.pattern[operand.name]
            part[: numbers.size] = numbers
        elif operand.name == "ctl":
            part[:] = np.zeros(control.WORDS, np.int64)
        else:
            part[:] = _RNG.standard_normal(part.size).astype(dtype) * 0.1

    def seconds(self) -> float:
        start = time.thread_time()
        self.entry(self.base, self.words.ctypes.data, 0, 1)
        return time.thread_time() - start


def compared(
    shape: tuple[int, ...], storage: str, rounds: int, target
) -> list[tuple[float, float, int]]:
    """Time the three products; return (direct seconds, Winograd's seconds, its scratch bytes)."""
    calls = [
        [Call(n, integers_of(*shape), storage, target) for n in pair] for pair in NAMES.items()
    ]
    best = [[1e9, 1e9] for _ in calls]
    for _ in range(rounds):
        for pair, found in zip(calls, best, strict=True):
            for which, call in enumerate(pair):
                found[which] = min(found[which], call.seconds())
    return [(*found, pair[1].scratch) for pair, found in zip(calls, best, strict=True)]


def lines(rounds: int = 8) -> Iterator[str]:
    """The table of docs/convolutions.md: a row per shape, in fp16 and in fp32."""
    processor = targets.get(targets.HOST).processor
    yield (
        "| batch x channels x size | chosen | fp16: forward | input | weights "
        "| fp32: forward | input | weights | workspace, KB |"
    )
    yield "|---|---|---:|---:|---:|---:|---:|---:|---:|"
    for n, c, h, k in SHAPES:
        half, single = (compared((n, c, h, k), storage, rounds, processor) for storage in FORMS)
        cells = [f"{direct / fast:.1f}" for direct, fast, _ in (*half, *single)]
        scratch = max(found[2] for found in (*half, *single)) // 1000
        name = f"{n} x {c} x {h} x {h}"
        yield f"| {name} | {_chosen(n, c, h, k)} | {' | '.join(cells)} | {scratch} |"


def _chosen(n: int, c: int, h: int, k: int) -> str:
    """The products that the rule gives to Winograd: all, some by name, or none."""
    attrs = dict(sh=1, sw=1, dh=1, dw=1, g=1, ph=1, pw=1)
    sizes = dict(n=n, c=c, h=h, wd=h, k=k, kh=3, kw=3, oh=h, ow=h)
    products = dict(zip(NAMES.values(), ("forward", "input", "weights"), strict=True))
    found = [word for kernel, word in products.items() if pays_winograd(sizes, attrs, kernel)]
    return "yes" if len(found) == len(products) else ", ".join(found) or "direct"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--storage", default="f16")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--target", default=targets.HOST, help="such as x86-64-v3, 8 lanes")
    parser.add_argument("shapes", nargs="*")
    given = parser.parse_args()
    shapes = [tuple(map(int, text.split(","))) for text in given.shapes] or SHAPES
    target = targets.get(given.target).processor
    print(
        "n x c x h x k | forward: us, direct / Winograd | input | weight | scratch, KB", flush=True
    )
    for shape in shapes:
        found = compared(shape, given.storage, given.rounds, target)
        cells = [f"{1e6 * fast:8.0f} {direct / fast:5.2f}" for direct, fast, _ in found]
        print(*("x".join(map(str, shape)).rjust(16), *cells), [f[2] // 1024 for f in found],
              sep=" | ", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
