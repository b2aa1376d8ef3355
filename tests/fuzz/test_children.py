"""The fuzzing harness: each way to end is recognised."""

import ctypes
import os
import time

import numpy as np
import pytest

from edgetrain.errors import DataError

from .children import fault, run


def _refuse():
    raise DataError("file: bad. Get it again.")


class _Long(DataError):
    def __str__(self) -> str:
        return "file: bad.\nGet it again."


def _refuse_at_length():
    raise _Long


def _burn():
    while True:
        pass


def _grow():
    return len(b"x" * 2**28)


ENDS = [
    (lambda: {"a": 1}, "returned", ""),
    (_refuse, "refused", ""),
    (_refuse_at_length, "refused", "more than one line"),
    (lambda: 1 // 0, "raised", "ZeroDivisionError"),
    (lambda: np.float32(np.inf) - np.float32(np.inf), "raised", "RuntimeWarning"),
    (lambda: ctypes.string_at(8), "signal", "SIGSEGV"),
    (lambda: os._exit(3), "exited", "status 3"),
    (lambda: os.abort(), "signal", "SIGABRT"),
    (lambda: print("Traceback (most recent call last)"), "returned", "Traceback"),
    (lambda: os.write(2, b"unexpected KeyError: 'x'"), "returned", "unexpected"),
    (_grow, "returned", "grew by"),
]


@pytest.mark.parametrize(("call", "how", "wrong"), ENDS)
def test_run_tells_how_a_child_ended(call, how, wrong):
    ended = run(call)
    found = fault(ended, grown_nbytes=2**27)
    assert ended.how == how and wrong in found and bool(wrong) == bool(found)


def test_run_returns_the_value():
    assert run(lambda: {"a": [1, None]}).value == {"a": [1, None]}


@pytest.mark.parametrize(
    ("call", "limits", "found"),
    [
        (_burn, {"cpu_seconds": 0.1}, "signal SIGXCPU"),
        (lambda: time.sleep(60), {"wall_seconds": 0.3}, "hung"),
    ],
)
def test_run_ends_what_does_not_end(call, limits, found):
    ended = run(call, **limits)
    assert fault(ended) == found
