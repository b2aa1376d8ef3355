"""A plan block over a Session for tests of the step loop: prepares what a caller would."""

import ctypes

import numpy as np

from edgetrain.kernels import control, registry
from edgetrain.kernels.step_loop import layout
from edgetrain.program import TARGET
from edgetrain.runtime.session import Session
from tests.kernels.harness import DTYPES, entry

FILL = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p
)


def kernel_entry(name: str):
    """Return a kernel without storages as a C function."""
    return entry(registry.variants(name)[0], ())


def address(function) -> int:
    """Return the address of a ctypes function."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def number(dtype) -> int:
    """Return a field's code for a storage type."""
    return next(k for k, name in enumerate(layout.TYPES) if DTYPES[name] == np.dtype(dtype))


class Plan:
    """Everything the step loop needs; keeps the arrays it points to alive."""

    def __init__(self, session: Session, n: int, parts: int = 1) -> None:
        program = session.program
        self.session, self.keep = session, []
        words = self.words = np.zeros(layout.WORDS, np.int64)
        words[:] = session._plan
        words[layout.RUN] = 0
        words[layout.SAMPLES], words[layout.EVAL_SAMPLES] = n, n
        words[layout.PARTS] = parts
        indices = self._held(np.zeros(program.microbatch, np.int64))
        words[layout.INDICES] = indices.ctypes.data
        self.indices = indices

    def _held(self, array: np.ndarray) -> np.ndarray:
        self.keep.append(array)
        return array

    def read_from(self, x: np.ndarray, y: np.ndarray, *, limit: int = 0) -> None:
        """Read samples from arrays in memory."""
        self.words[layout.SOURCE] = layout.FROM_MEMORY
        self._fields(x, y, limit)

    def ask(self, x: np.ndarray, y: np.ndarray) -> None:
        """Get samples one at a time through a callback."""
        self._fields(x, y, 0)

        def fill(user, split, sample, to_x, to_y) -> int:
            ctypes.memmove(to_x, x[sample].ctypes.data, x[sample].nbytes)
            ctypes.memmove(to_y, y[sample : sample + 1].ctypes.data, y.itemsize)
            return 0

        self.callback(layout.FROM_SAMPLES, fill)

    def callback(self, source: int, fill) -> None:
        """Call `fill(user, split, sample, x, y) -> status` for samples."""
        made = FILL(fill)
        self.keep.append(made)
        self.words[layout.SOURCE], self.words[layout.FILL] = source, address(made)

    def _fields(self, x: np.ndarray, y: np.ndarray, limit: int) -> None:
        self.words[layout.FIELDS] = 2
        for tape, word in (("micro", layout.TRAIN_FIELDS), ("eval", layout.EVAL_FIELDS)):
            fields = self._held(np.zeros((2, layout.FIELD_WORDS), np.int64))
            staging = self.session._staging[tape]
            name = next(n for n in staging if n != TARGET)
            for field, staged, raw in zip(
                fields, (staging[name], staging[TARGET]), (x, y), strict=True
            ):
                field[layout.STAGED] = staged.ctypes.data
                field[layout.STAGED_TYPE] = number(staged.dtype)
                field[layout.SIZE] = staged[0].size
                field[layout.RAW], field[layout.RAW_STRIDE] = raw.ctypes.data, raw.strides[0]
                field[layout.RAW_TYPE] = number(raw.dtype)
            fields[1][layout.LIMIT] = limit
            self.words[word] = fields.ctypes.data

    def train(self, whole: int = 1) -> int:
        """Call `drive_train`; return its status."""
        arguments = np.array([self.words.ctypes.data, whole], np.int64)
        kernel_entry("drive_train")(0, arguments.ctypes.data, 0, 1)
        return int(self.words[layout.STATUS])

    def evaluate(self) -> int:
        """Call `drive_evaluate`; return its status."""
        arguments = np.array([self.words.ctypes.data], np.int64)
        kernel_entry("drive_evaluate")(0, arguments.ctypes.data, 0, 1)
        return int(self.words[layout.STATUS])

    def set(self, **words: float) -> None:
        """Set words of the control block by name."""
        for name, value in words.items():
            index = getattr(control, name)
            where = self.session.ints if index < control.LR else self.session.reals
            where[index] = value
