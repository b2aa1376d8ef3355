"""The leader of a thread team, with simulated workers and clock."""

import numpy as np
import pytest

from edgetrain.kernels.step_loop.team import ALONE, CHOSEN, RUNS, TAPES, TOGETHER, TRIES
from edgetrain.kernels.tapes import tape
from edgetrain.runtime import team
from tests.kernels.harness import ENTRY
from tests.kernels.step_loop.plans import address, kernel_entry

pytestmark = pytest.mark.skipif(
    not team._FUTEX, reason="workers sleep by the system call of 64-bit Linux"
)


class Led:
    """A short tape that runs on two threads if the worker answers.

    Attributes:
      ran: thread count of each run of the tape.
    """

    def __init__(self, job: int = 7, nanoseconds: int = 900) -> None:
        self.ran: list[int] = []
        self.block, self._now, self._by = team._aligned(tape.TEAM_WORDS), 0, nanoseconds
        self.memo = np.zeros(tape.MEMO_WORDS + tape.TIMES, np.int64)
        self.memo[[RUNS, TAPES]] = TRIES, 1  # the two-thread run is tried now
        self.times = self.memo[tape.MEMO_WORDS :]
        self.times[[ALONE, TOGETHER]] = 1000, 2**62
        self._kept = ENTRY(self._tape), ENTRY(self._clock)
        self.block[[tape.ENTRY, tape.CLOCK]] = [*map(address, self._kept)]
        self.job[0] = job
        following = np.array([job + 1], np.int64).astype(np.int32)[0]
        self.word(tape.THERE + 1)[0] = following  # the worker has answered

    def word(self, number: int) -> np.ndarray:
        """Return the lower 32 bits of a word, which threads poll."""
        return self.block[number : number + 1].view(np.int32)

    @property
    def job(self) -> np.ndarray:
        return self.word(tape.JOB)

    def _tape(self, base: int, operands: int, thread: int, threads: int) -> None:
        self.ran.append(threads)

    def _clock(self, *_: int) -> None:
        self.block[[tape.TIME, tape.TIME + 1]] = divmod(self._now, 10**9)
        self._now += self._by

    def __call__(self) -> None:
        given = [0, 0, 0, 0, self.block.ctypes.data, 2, 0, self.memo.ctypes.data, 0]
        operands = np.array(given, np.int64)
        kernel_entry("drive_lead")(0, operands.ctypes.data, 0, 1)


@pytest.mark.parametrize("job", [0, 2**31 - 2, 2**31 - 1, -(2**31), -1])
def test_a_worker_that_answered_comes_along_whatever_the_number_of_the_tape(job: int) -> None:
    led = Led(job)
    led()
    assert led.ran == [2]
    assert led.job[0] == led.word(tape.BEGUN)[0] == led.word(tape.DECIDED)[0]
    assert led.job[0] == led.word(tape.THERE + 1)[0]


@pytest.mark.parametrize(("nanoseconds", "chosen"), [(874, 1), (875, 0), (900, 0), (1000, 0)])
def test_workers_are_chosen_where_they_take_more_than_an_eighth_off(
    nanoseconds: int, chosen: int
) -> None:
    led = Led(nanoseconds=nanoseconds)
    led()
    assert led.times.tolist() == [1000, nanoseconds]
    assert led.memo[CHOSEN] == chosen


def test_a_worker_that_does_not_answer_is_not_waited_for() -> None:
    led = Led()
    led.word(tape.THERE + 1)[0] = 0
    led()
    assert led.ran == [1] and led.word(tape.BEGUN)[0] == 0 and led.times[ALONE] == 900
