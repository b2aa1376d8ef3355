"""Ctrl-C while machine code runs waits until Python can handle it, and no worker hangs."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from edgetrain.runtime.training.signals import Deferral, handling

SCRIPT = """
import hashlib, os, random, signal, sys, threading, time
import numpy as np
import edgetrain as et

session = et.Session(et.load_program(sys.argv[1]), int(sys.argv[2]))
times, came, inside = int(sys.argv[3]), 0, False
taken = threading.Semaphore(0)

def interrupt():
    draw = random.Random(0)
    while came < times:
        time.sleep(draw.uniform(0.0, 0.004))
        os.kill(os.getpid(), signal.SIGINT)
        taken.acquire()

def raised(signum, frame):
    if inside:
        raise KeyboardInterrupt
    taken.release()  # it came between two minibatches: another one is sent

draw, data = np.random.default_rng(0), {}
for name, buffer in session._staging["micro"].items():
    shape = (320, *buffer.shape[1:])
    kind = buffer.dtype.kind
    data[name] = draw.integers(0, 2, shape) if kind == "i" else draw.standard_normal(shape)

def fill(indices):
    for name, buffer in session._staging["micro"].items():
        buffer[...] = data[name][indices]

signal.signal(signal.SIGINT, raised)
threading.Thread(target=interrupt, daemon=True).start()
while session.step < int(sys.argv[4]) or came < times:
    try:
        inside = True
        session.minibatch(320, fill)
        inside = False
    except KeyboardInterrupt:
        inside, came = False, came + 1
        taken.release()
state = session.state()
print(came, session.step)
print(hashlib.sha256(b"".join(state[name].tobytes() for name in sorted(state))).hexdigest())
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_twenty_interrupts_amid_tapes_leave_the_bits_of_none(digits_edge: Path, threads) -> None:
    def ran(*counts: object) -> list[str]:
        command = [sys.executable, "-c", SCRIPT, *map(str, (digits_edge, threads, *counts))]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0 and not done.stderr, done.stderr[-2000:]
        return done.stdout.split()

    came, steps, digest = ran(20, 10)
    assert came == "20" and ran(0, steps) == ["0", steps, digest]


def raises(signum: int) -> None:
    raise KeyboardInterrupt


def test_a_signal_is_held_back_and_delivered_at_the_end() -> None:
    said: list[str] = []
    with handling(raises, (signal.SIGUSR1,)), pytest.raises(KeyboardInterrupt), Deferral():
        os.kill(os.getpid(), signal.SIGUSR1)
        said.append("went on")
    assert said == ["went on"]


def test_an_opening_lets_a_signal_through() -> None:
    deferral, said = Deferral(), []
    with handling(raises, (signal.SIGUSR1,)):
        handler = signal.getsignal(signal.SIGUSR1)
        with deferral:
            os.kill(os.getpid(), signal.SIGUSR1)
            with pytest.raises(KeyboardInterrupt), deferral.open():
                said.append("not reached")
            assert signal.getsignal(signal.SIGUSR1) != handler
            with pytest.raises(KeyboardInterrupt), deferral.open():
                os.kill(os.getpid(), signal.SIGUSR1)
                said.append("not reached either")
        assert signal.getsignal(signal.SIGUSR1) == handler
    assert said == []


def test_handlers_that_only_count_are_called_at_once() -> None:
    said: list[int] = []
    with handling(said.append, (signal.SIGUSR1,), quiet=True), Deferral():
        os.kill(os.getpid(), signal.SIGUSR1)
        assert said == [signal.SIGUSR1]
