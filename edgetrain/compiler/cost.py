"""The cost model: seconds of an instruction from its FLOPs and the bytes it moves.

Defaults are for an average core. `calibrate` measures this machine and stores the rates in the
kernel cache; later plans on this machine use them.
"""

import functools
import json
from dataclasses import asdict, dataclass

from ..kernels.cache import disk


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates of one thread: FLOPs per second, bytes per second, minimum seconds per instruction."""

    flops: float = 60e9
    nbytes: float = 15e9
    step: float = 3e-6

    def seconds(self, flops: int, nbytes: int, threads: int) -> float:
        """Time of an instruction split over `threads`."""
        return self.step + (flops / self.flops + nbytes / self.nbytes) / threads


_FILE = "rates.json"
_measured: list[Rates] = []  # by this process


def rates() -> Rates:
    """This machine's measured rates, or the defaults."""
    return _measured[-1] if _measured else _kept()


@functools.cache
def _kept() -> Rates:
    kept = disk.read(_FILE, _FILE)
    return Rates() if kept is None else Rates(**json.loads(kept))


def calibrate() -> Rates:
    """Measure a convolution, an elementwise pass and a tiny call; store the result."""
    from ..kernels.cache import timing  # plans alone measure nothing

    sizes = {"n": 4, "c": 32, "h": 32, "wd": 32, "k": 32, "kh": 3, "kw": 3, "oh": 32, "ow": 32}
    step = {"sh": 1, "sw": 1, "ph": 1, "pw": 1, "dh": 1, "dw": 1, "g": 1, "act": 0}
    present = {"x": 0, "w": 0, "y": 0, "bias": -1, "stat": -1, "gamma": -1, "beta": -1}
    fp32 = {"S": "f32", "W": "f32"}
    conv = timing.seconds("conv", fp32, {**sizes, **step, **present})
    flops = 2 * 4 * 32 * 32 * 32 * 32 * 9
    count = 2**20
    wide = timing.seconds("un_relu", {"S": "f32"}, {"x": 0, "y": 0, "n": count})
    tiny = timing.seconds("un_relu", {"S": "f32"}, {"x": 0, "y": 0, "n": 16}, repeats=99)
    measured = Rates(flops / conv, 8 * count / wide, tiny)
    disk.write(_FILE, _FILE, json.dumps(asdict(measured)).encode())
    _measured.append(measured)
    return measured
