"""Loads a bundle's library into this process and calls its functions as C would."""

import ctypes
import itertools
from collections.abc import Sequence

import numpy as np

from edgetrain.bundle import functions
from edgetrain.bundle.image import Image
from edgetrain.bundle.writing import image_for, library, mapped, weights
from edgetrain.kernels import targets
from edgetrain.kernels.cache.load import opened
from edgetrain.program import Program
from edgetrain.program.samples import made_up

FILL = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p
)
ERASE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
MOVE = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint32
)
_TYPES = {"int": ctypes.c_int, "int64_t": ctypes.c_int64, "double": ctypes.c_double}
_numbers = itertools.count()


class Report(ctypes.Structure):
    _fields_ = [(n, ctypes.c_int64) for n in ("step", "skipped")] + [
        (n, ctypes.c_double) for n in ("loss", "grad_norm", "lr", "loss_scale")
    ]


class Rates(ctypes.Structure):
    _fields_ = [
        *((n, ctypes.c_int64) for n in ("kind", "total_steps", "warmup_steps", "size")),
        *((n, ctypes.c_int64) for n in ("patience", "cooldown")),
        ("drops", ctypes.c_int64 * 8),
        *((n, ctypes.c_double) for n in ("lr", "gamma", "threshold", "min_lr")),
        *((n, ctypes.c_double) for n in ("rise", "first", "last")),
    ]


class Store(ctypes.Structure):
    _fields_ = [("user", ctypes.c_void_p), ("erase", ERASE), ("write", MOVE), ("read", MOVE)]


def made_up_fill(program: Program):
    """Return a fill callback over made-up samples, in the form that bundles take."""
    staged = program.staged("micro").items()
    last = len(staged) - 1

    def fill(user, split, sample, x, y) -> int:
        for k, (name, slot) in enumerate(staged):
            values = made_up(program, slot, k, sample, name)
            where = y if k == last else x
            if k < last and last > 1:
                where = (ctypes.c_void_p * last).from_address(x)[k]
            ctypes.memmove(where, values.ctypes.data, values.nbytes)
        return 0

    return fill


class Loaded:
    """The library of one Program; `net()` returns nets that use it."""

    def __init__(self, program: Program, sets: Sequence[Program] = ()) -> None:
        self.program, prefix = program, f"net{next(_numbers)}"
        target = targets.host()
        self.image: Image = image_for(program, 64, sets)
        made = library(self.image, prefix, target)
        found = functions.functions(program, len(sets))
        names = [*functions.exports(prefix, found), f"{prefix}_init"]
        objects = [made.code, weights(self.image, prefix, target)[0]]
        if program.mapped:
            objects.append(mapped(self.image, prefix, target)[0])
        addresses = opened(objects, names)
        self._functions = {}
        for function in found:
            kinds = [_TYPES.get(c, ctypes.c_void_p) for c, _ in function.parameters]
            returns = {"int": ctypes.c_int, "uint32_t": ctypes.c_uint32}.get(function.returns)
            kind = ctypes.CFUNCTYPE(returns, ctypes.c_void_p, *kinds)
            self._functions[function.name] = kind(addresses[f"{prefix}_{function.name}"])
        kind = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
        self.init = kind(addresses[f"{prefix}_init"])

    def net(self) -> "Net":
        """Create a net with its own memory."""
        return Net(self)


class Net:
    """One net; the C functions are its methods, without their first argument."""

    def __init__(self, library: Loaded) -> None:
        self.library = library
        self.memory = np.full(library.image.nbytes + 64, 0xA5, np.uint8)
        self.handle = library.init(self.memory.ctypes.data, self.memory.nbytes)
        self._kept: list = []

    def __getattr__(self, name: str):
        function = self.library._functions[name]
        return lambda *given: function(self.handle, *given)

    def ask(self, fill, train: int, held: int = 0) -> int:
        """Call `data` with a Python function."""
        made = FILL(fill)
        self._kept.append(made)
        return self.data(ctypes.cast(made, ctypes.c_void_p), None, train, held)

    def made_up(self, held: int = 0) -> "Net":
        """Train on four minibatches of made-up samples."""
        program = self.library.program
        assert self.ask(made_up_fill(program), 4 * program.minibatch, held) == 0
        return self

    def steps(self, count: int) -> "Net":
        """Run `count` training steps."""
        for _ in range(count):
            assert self.step() == 0
        return self

    def report(self) -> Report:
        out = Report()
        self.progress(ctypes.addressof(out))
        return out

    def value(self, number: int) -> np.ndarray:
        """Return the value that `get` writes."""
        slot = self.library.image.values[number]
        out = np.zeros(slot.shape, np.float32)
        assert self.get(number, out.ctypes.data) == 0
        return out
