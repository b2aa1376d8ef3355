"""Fused updates in a bundle: a failed step restores the stored state and is skipped."""

import ctypes
import re
import shutil
import subprocess

import numpy as np
import pytest

import edgetrain as et
from edgetrain.api import bundle
from edgetrain.kernels.device import layout as device
from edgetrain.program.stored import slot_nbytes
from edgetrain.runtime.samples.check import digest_of, made_up_filler, state_digest
from edgetrain.runtime.session import Session
from tests.bundle.flash import Flash
from tests.bundle.loaded import Loaded, made_up_fill

STEPS, SPIKE = 10, 65000.0


@pytest.fixture(scope="module")
def programs(two_layers):
    """Programs with fused updates and with updates at a step's end; both give the same bits."""
    how = {"minibatch": 8, "microbatch": 8, "threads": 1, "precision": "fp16"}
    how |= {"loss_scale": 4096.0, "optimizer": et.Adam(lr=0.01)}
    return tuple(et.compile(two_layers, fused_update=fused, **how) for fused in (True, False))


@pytest.fixture(scope="module")
def loaded(programs):
    return Loaded(programs[0])


def spiked(program):
    """Fill with made-up samples, the first of which overflows."""
    good, (slot,) = made_up_fill(program), program.inputs["micro"]

    def fill(user, split, sample, x, y) -> int:
        good(user, split, sample, x, y)
        if sample == 0:
            place = (ctypes.c_float * (slot.size // program.microbatch)).from_address(x)
            place[:] = np.copysign(SPIKE, place)
        return 0

    return fill


def expected(program, spike=None):
    """Return (digest, skipped steps) of a run that updates at the end of a step."""
    session = Session(program, 1)
    filler = made_up_filler(session, spike)
    results = [session.minibatch(4 * program.minibatch, filler) for _ in range(STEPS)]
    found = digest_of(session), sum(r.skipped for r in results)
    session.close()
    return found


def test_steps_that_succeed_have_the_bits_of_others(loaded, programs):
    net = loaded.net().made_up().steps(STEPS)
    assert net.digest() & 0xFFFFFFFF == expected(programs[1])[0]
    assert net.digest() & 0xFFFFFFFF == state_digest(programs[0], STEPS)


@pytest.mark.parametrize("every", [1, 3, 100])
@pytest.mark.parametrize("whole", [True, False])
def test_a_step_that_fails_goes_back_and_is_passed_over(loaded, programs, every, whole):
    net, flash, failed = loaded.net(), Flash(slot_nbytes(programs[0])), set()
    net.ask(spiked(programs[0]), 4 * programs[0].minibatch)
    assert net.save(flash.address) == 0
    while (step := net.report().step) < STEPS:
        if step in failed:
            assert getattr(net, "pass")() == 0 and net.report().skipped == 1
        elif (status := net.step() if whole else net.poll()) == device.BROKEN:
            failed.add(step)
            refused = [net.save(flash.address), net.eval(None, None), getattr(net, "pass")()]
            assert refused == [device.BUSY] * 3 and net.poll() == device.BROKEN
            assert net.load(flash.address) == 0 and net.report().step <= step
            continue
        else:
            assert status in (0, -6)
        if net.report().step > step and net.report().step % every == 0:
            assert net.save(flash.address) == 0
    digest, skipped = expected(programs[1], SPIKE)
    assert (net.digest() & 0xFFFFFFFF, len(failed)) == (digest, skipped) and skipped > 1


def test_passing_needs_data_and_a_minibatch_that_is_not_begun(loaded):
    net = loaded.net()
    assert getattr(net, "pass")() == device.REFUSED
    net.made_up()
    assert net.poll() == -6 and getattr(net, "pass")() == device.BUSY


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc not installed")
def test_main_goes_back_to_its_state(two_layers, programs, tmp_path):
    draw = np.random.default_rng(1)
    x, y = draw.standard_normal((32, 6)).astype(np.float32), np.arange(32) % 3
    x[5] = SPIKE
    np.savez(tmp_path / "data.npz", x_train=x, y_train=y, x_test=x[:4], y_test=y[:4])
    data = et.open_data(f"npz:{tmp_path / 'data.npz'}")
    digests = []
    for name, program in zip(("back", "after"), programs, strict=True):
        folder = tmp_path / name
        bundle(program, folder, name=name, data=data)
        made = subprocess.run(["make", "CC=gcc -Werror"], cwd=folder, capture_output=True)
        assert made.returncode == 0, made.stderr
        command = [f"./{name}", f"{name}.samples", "23", "state"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
        digests += re.findall(r"^digest (\w+)", done.stdout, re.M)
    assert digests[0] == digests[1]
    done = subprocess.run(
        ["./back", "back.samples", "23"], cwd=tmp_path / "back", capture_output=True, text=True
    )
    assert done.returncode == 1 and "name a file for it" in done.stderr
