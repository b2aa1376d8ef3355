"""The cost model: seconds of an instruction from what it computes, arranges and moves.

An instruction takes the sum of:

- its FLOPs over `flops`, the rate of multiply-adds on registers;
- the elements that a convolution arranges for its inner loops, over `maps` or `weights`. All output
  channels share them, so a convolution with few channels is slower per FLOP. Weight gradients
  arrange theirs more slowly, and depthwise convolutions share nothing (`planes`);
- the bytes of its operands over `nbytes`;
- the time of a call, `step`.

Plans are compared using only the default rates (`COUNTED`) and without arranged elements, so they
are the same on every machine. `calibrate` measures this machine and stores its rates in the kernel
cache; time estimates (`advice/estimate.py`) use them. Not modelled: caches, and functions such as
exp, pools and gathers, which count only the FLOPs and bytes of their op.
"""

import functools
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from ..kernels.cache import disk


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates of one thread; the defaults are for an average core.

    Attributes:
      flops, nbytes: per second, of instructions.
      step: seconds of an instruction that is called by itself.
      maps, weights, planes: elements per second that a convolution arranges: forward and input
        gradient, weight gradient, depthwise.
      python: seconds per iteration of `_turns`.
    """

    flops: float = 60e9
    nbytes: float = 15e9
    step: float = 1.2e-6
    maps: float = 15e9
    weights: float = 1.4e9
    planes: float = 25e9
    python: float = 1e-6

    def seconds(self, flops: int, nbytes: int, threads: int) -> float:
        """Time of an instruction split over `threads`."""
        return self.step + (flops / self.flops + nbytes / self.nbytes) / threads


COUNTED = Rates(60e9, 15e9, 3e-6)  # rates for comparing plans
_FILE = "rates.json"
_LAYOUT = "rates 2"  # of the file: rates of builds with another layout are not read
_measured: list[Rates] = []  # by this process


def rates() -> Rates:
    """This machine's measured rates, or the defaults."""
    return _measured[-1] if _measured else _kept()


@functools.cache
def _kept() -> Rates:
    kept = disk.read(_FILE, _LAYOUT)
    return Rates() if kept is None else Rates(**json.loads(kept))


def calibrate() -> Rates:
    """Measure a few kernels and some Python on this machine; store the result.

    Each figure is the minimum of several interleaved runs: other load only makes runs longer.
    """
    many, few, lone = _sizes(32, 32), _sizes(4, 4), _sizes(32, 1)
    count = 2**20
    measured = _least(
        {
            "many": _conv(many),
            "few": _conv(few),
            "weights": _weight_gradient(few),
            "lone": _conv(lone),
            "wide": _relu(count),
            "python": _turns,
        },
        _ROUNDS,
    )
    step = _least({"tiny": _relu(16)}, 10 * _ROUNDS)["tiny"]
    flops = _flops(many) / (measured["many"] - step)

    def arranged(name: str, sizes: dict[str, int]) -> float:
        spent = measured[name] - step - _flops(sizes) / flops
        return _elements(sizes) / max(spent, _LEAST_PART * measured[name])

    result = Rates(
        flops,
        8 * count / measured["wide"],
        step,
        arranged("few", few),
        arranged("weights", few),
        arranged("lone", lone),
        measured["python"] / _TURNS,
    )
    disk.write(_FILE, _LAYOUT, json.dumps(asdict(result)).encode())
    _measured.append(result)
    return result


_ROUNDS, _TURNS = 15, 200
_LEAST_PART = 0.05  # of a measured time: differences below this are noise
Timed = Callable[[], float]


def _least(calls: dict[str, Timed], rounds: int) -> dict[str, float]:
    """The least seconds of each call; every round runs each call once."""
    taken = {name: [call() for _ in range(2)][1:] for name, call in calls.items()}
    for _ in range(rounds):
        for name, call in calls.items():
            taken[name].append(call())
    return {name: min(seconds) for name, seconds in taken.items()}


def _turns() -> float:
    """Seconds of Python work typical of a step: a dictionary, a slice, a numpy call."""
    result, array = {}, np.zeros(8, np.float32)
    start = time.perf_counter()
    for k in range(_TURNS):
        result[k % 7] = array[k % 8 :].sum()
    return time.perf_counter() - start


def _sizes(channels: int, a_group: int) -> dict[str, int]:
    """Sizes of a 3 x 3 convolution on 4 samples of 32 x 32, `a_group` channels per group."""
    sizes = {"n": 4, "c": channels, "h": 32, "wd": 32, "k": channels, "oh": 32, "ow": 32}
    sizes |= {"kh": 3, "kw": 3, "g": channels // a_group, "act": 0}
    return sizes | {"sh": 1, "sw": 1, "ph": 1, "pw": 1, "dh": 1, "dw": 1}


def _elements(sizes: dict[str, int]) -> int:
    return sizes["n"] * sizes["oh"] * sizes["ow"] * sizes["c"] * sizes["kh"] * sizes["kw"]


def _flops(sizes: dict[str, int]) -> int:
    return 2 * _elements(sizes) * sizes["k"] // sizes["g"]


_PROLOGUE = {"stat": -1, "gamma": -1, "beta": -1}


def _conv(sizes: dict[str, int]) -> Timed:
    present = {"x": 0, "w": 0, "y": 0, "bias": -1}
    return _timed("conv", {"S": "f32", "W": "f32"}, sizes | present | _PROLOGUE)


def _weight_gradient(sizes: dict[str, int]) -> Timed:
    present = {"x": 0, "dy": 0, "dwt": 0, "ctl": 0, "key": 0}
    return _timed("conv_dw", {"S": "f32", "G": "f32"}, sizes | present | _PROLOGUE)


def _relu(count: int) -> Timed:
    return _timed("un_relu", {"S": "f32"}, {"x": 0, "y": 0, "n": count})


def _timed(name: str, storages: dict[str, str], values: dict[str, int]) -> Timed:
    from ..kernels.cache import timing  # imported here because planning measures nothing

    return timing.timed_call(name, storages, values)
