"""What a bundle will compute, found out here: its plan, kernels and samples in this process."""

import ctypes
import zlib
from functools import partial

import numpy as np

from ..compiler.program import Program
from ..errors import RunError
from ..kernels import jit, registry
from ..kernels.device import layout as device
from ..kernels.drive import layout as plans
from ..runtime.session import SAVED_ROLES, TARGET, Session
from .functions import RATES
from .image import image_of
from .samples import made_up
from .texts import limit_of

_FILL = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p
)
_ENTRY = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)
_MOST_WORDS = plans.WORDS - plans.ARGUMENTS


class Host:
    """The drive over a Session's arena and tapes, prepared as a bundle prepares it.

    Args:
      program: any; it runs with its own kernels.
    """

    def __init__(self, program: Program) -> None:
        self.session = Session(program, 1)
        lengths = {name: words.nbytes for name, words in program.tapes.items()}
        self.image = image_of(program, lengths, _MOST_WORDS, 64)
        self._words = np.zeros(self.image.control_nbytes // 8, np.int64)
        self._kept: list = [np.zeros(len(program.kernels), np.int64)]
        self._entries = _entries("run_tape", "drive_train", "drive_evaluate", *RATES)
        self._fill_words()

    def _fill_words(self) -> None:
        executor, image = self.session.executor, self.image
        strides = self._kept[0]
        strides[:] = plans.SPLIT_NONE
        rates = np.array([self._entries[name] for name in RATES], np.int64)
        self._kept.append(rates)
        symbols = {"strides": strides.ctypes.data, "rates": rates.ctypes.data}
        symbols["table"] = executor._table.ctypes.data
        symbols |= {f"tape.{n}": words.ctypes.data for n, words in executor._tapes.items()}
        symbols |= {f"et_{n}__plain": a for n, a in self._entries.items()}
        for at, value in image.literals.items():
            self._store(at, value)
        for at, offset in image.relatives.items():
            self._store(at, self._address(offset))
        for at, (symbol, behind) in image.addresses.items():
            self._store(at, symbols[symbol] + behind)

    def _address(self, offset: int) -> int:
        inside = offset - self.image.control_nbytes
        return (
            self.session.arena.address + inside if inside >= 0 else self._words.ctypes.data + offset
        )

    def _store(self, at: int, value: int) -> None:
        ctypes.c_int64.from_address(self._address(at)).value = value

    @property
    def plan(self) -> np.ndarray:
        """Words of the plan block."""
        return self._words[device.WORDS : device.WORDS + plans.WORDS]

    def ask(self, fill, train: int, held: int = 0) -> None:
        """Samples come from `fill(user, split, sample, x, y) -> int`."""
        made = _FILL(fill)
        self._kept.append(made)
        plan = self.plan
        plan[plans.SOURCE] = plans.FROM_SAMPLES
        plan[plans.FILL] = ctypes.cast(made, ctypes.c_void_p).value
        plan[[plans.SAMPLES, plans.EVAL_SAMPLES]] = train, held

    def step(self) -> int:
        """One minibatch; its status."""
        self._words[device.WHOLE] = 1
        _ENTRY(self._entries["drive_train"])(0, self._words.ctypes.data, 0, 1)
        return int(self.plan[plans.STATUS])

    def digest(self) -> int:
        """CRC-32 of what a checkpoint holds, as NAME_digest of a bundle."""
        value, program = 0, self.session.program
        for slot in program.persistent:
            if slot.role in SAVED_ROLES:
                value = zlib.crc32(self.session.values[slot.name].tobytes(), value)
        return value


def made_up_fill(program: Program):
    """The fill callback over made-up samples."""
    fields = [(slot, slot.name) for slot in program.inputs["micro"]]
    fields.append((program.targets["micro"], TARGET))

    def fill(user, split, sample, x, y) -> int:
        last = len(fields) - 1
        for k, (slot, name) in enumerate(fields):
            values = made_up(program, slot, k, sample, limit_of(program, name))
            where = y if k == last else x
            if k < last and last > 1:
                where = (ctypes.c_void_p * last).from_address(x)[k]
            ctypes.memmove(where, values.ctypes.data, values.nbytes)
        return 0

    return fill


def state_digest(program: Program, steps: int) -> int:
    """CRC-32 of the state after `steps` minibatches of made-up samples.

    Raises:
      RunError: a step was refused.
    """
    host = Host(program)
    try:
        host.ask(made_up_fill(program), 4 * program.minibatch)
        for step in range(steps):
            status = host.step()
            if status != plans.DONE:
                raise RunError(f"step {step + 1} of made-up samples ended with status {status}.")
        return host.digest()
    finally:
        host.session.close()


def _entries(*names: str) -> dict[str, int]:
    target = jit.host()
    kernels = {name: registry.variants(name)[0] for name in names}
    found = jit.load({k.symbol({}): partial(k.object, {}, target) for k in kernels.values()})
    return {name: found[kernel.symbol({})] for name, kernel in kernels.items()}
