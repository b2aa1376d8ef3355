"""State in two flash slots: power cuts at every write, bit flips, wear."""

import numpy as np
import pytest

from edgetrain.errors import CheckpointError
from edgetrain.kernels import control
from edgetrain.kernels.device import layout as device
from edgetrain.kernels.step_loop import layout
from edgetrain.program.stored import read_stored, slot_nbytes, write_stored
from edgetrain.runtime.samples.check import state_digest
from tests.bundle.flash import Flash


@pytest.fixture
def flash(library):
    return Flash(slot_nbytes(library.program))


def resumed(library, flash) -> int:
    """Load the state in a new net, check its bits, and return its step count."""
    net = library.net().made_up()
    status = net.load(flash.address)
    steps = net.report().step
    assert status == (0 if steps else device.NOTHING)
    assert not steps or net.digest() & 0xFFFFFFFF == digests(library)[steps]
    return steps


_digests: dict[int, dict[int, int]] = {}


def digests(library) -> dict[int, int]:
    """Return the digest after each number of steps."""
    found = _digests.setdefault(id(library), {})
    if not found:
        net = library.net().made_up()
        for step in range(13):
            found[step] = net.digest() & 0xFFFFFFFF
            net.steps(1)
    return found


def test_a_saved_state_is_loaded_and_goes_on_with_the_same_bits(library, flash):
    assert resumed(library, flash) == 0
    net = library.net().made_up()
    net.settings(0.01, 1, 100, 0, 3, 0.5)
    for _ in range(3):
        net.steps(3)
        assert net.save(flash.address) == 0
    other = library.net().made_up()
    assert other.load(flash.address) == 0 and other.report().step == 9
    assert other.steps(3).digest() == net.steps(3).digest()
    assert other.report().lr == net.report().lr == 0.01 * 0.5**3
    assert flash.misused == []


def test_a_minibatch_that_is_half_done_is_not_saved_and_discarded_by_load(library, flash):
    net = library.net().made_up().steps(2)
    assert net.save(flash.address) == 0
    for _ in range(30):
        assert net.poll() == layout.MORE
    assert net.save(flash.address) == device.BUSY
    assert net.load(flash.address) == 0
    assert net.steps(5).digest() & 0xFFFFFFFF == digests(library)[7]


def test_power_lost_at_every_write_leaves_the_state_before_or_the_new_one(library):
    flash = Flash(slot_nbytes(library.program))
    net = library.net().made_up().steps(1)
    assert net.save(flash.address) == 0
    each = flash.writes
    for cut in range(each + 1):
        flash = Flash(slot_nbytes(library.program), seed=cut)
        net = library.net().made_up()
        for _ in range(2):
            assert net.steps(1).save(flash.address) == 0
        flash.cut_after(cut)
        status = net.steps(1).save(flash.address)
        assert (status == 0) == (cut == each)
        flash.cut_after(None)
        assert resumed(library, flash) == (3 if cut == each else 2), cut
        assert net.steps(1).save(flash.address) == 0  # the torn slot is reused
        assert resumed(library, flash) == 4 and flash.misused == []


@pytest.mark.slow
def test_a_thousand_random_cuts_lose_at_most_the_last_save(library):
    draw = np.random.default_rng(5)
    flash = Flash(slot_nbytes(library.program), seed=1)
    newest, each, cuts = 0, 2 + slot_nbytes(library.program) // 256 + 8, 0
    while cuts < 1000:
        net = library.net().made_up()
        net.load(flash.address)
        found = net.report().step
        assert found in (newest, newest + 1)
        newest = found
        if newest == 12:
            flash.data[:] = 0xFF
            newest = 0
            continue
        assert net.digest() & 0xFFFFFFFF == digests(library)[newest]
        flash.cut_after(int(draw.integers(0, each + 1)))
        cuts += net.steps(1).save(flash.address) != 0
        flash.cut_after(None)
    assert flash.misused == []


def test_any_flipped_bit_leaves_the_other_state(library, flash):
    net = library.net().made_up()
    for _ in range(2):
        assert net.steps(1).save(flash.address) == 0
    draw, kept = np.random.default_rng(3), flash.data.copy()
    places = [*range(64 * 8), *draw.integers(0, 8 * flash.data.shape[1], 64)]
    for place in places[::7]:
        flash.data[:] = kept
        flash.data[1, place // 8] ^= 1 << place % 8
        assert resumed(library, flash) == 1, place
        flash.data[0] = flash.data[1]
        assert resumed(library, flash) == 0, place


def test_worn_flash_is_said_and_what_it_held_stays(library, flash):
    net = library.net().made_up()
    for _ in range(2):
        assert net.steps(1).save(flash.address) == 0
    flash.worn = True
    assert net.steps(1).save(flash.address) == device.FAILED
    assert resumed(library, flash) == 2


def test_a_write_that_is_lost_in_silence_is_said_and_the_state_before_stays(library):
    flash = Flash(slot_nbytes(library.program))
    net = library.net().made_up().steps(1)
    assert net.save(flash.address) == 0
    each = flash.writes
    for lost in range(1, each):  # 0 is the erasure, which does not matter for an erased slot
        flash = Flash(slot_nbytes(library.program))
        net = library.net().made_up()
        for _ in range(2):
            assert net.steps(1).save(flash.address) == 0
        flash.lost = flash.writes + lost
        assert net.steps(1).save(flash.address) == device.FAILED, lost
        assert resumed(library, flash) == 2
        assert net.save(flash.address) == 0 and resumed(library, flash) == 3


def test_a_state_of_another_program_is_nothing(library, two_layers, flash):
    import edgetrain as et
    from tests.bundle.loaded import Loaded

    other = Loaded(et.compile(two_layers, minibatch=8, precision="fp16", threads=1))
    assert library.net().made_up().steps(1).save(flash.address) == 0
    assert other.net().load(flash.address) == device.NOTHING


def test_the_host_reads_a_devices_state_and_a_device_the_hosts(library, flash, tmp_path):
    program = library.program
    net = library.net().made_up().steps(4)
    assert net.save(flash.address) == 0 and net.steps(1).save(flash.address) == 0
    image = tmp_path / "image.bin"
    image.write_bytes(flash.data.tobytes())
    found = read_stored(image, program)
    assert (found.sequence, found.exact, found.block[control.STEP]) == (2, True, 5)
    for number, slot in enumerate(library.image.values):
        np.testing.assert_array_equal(found.tensors[slot.name], net.value(number))
    written = tmp_path / "written.bin"
    write_stored(written, program, found.tensors, found.block)
    flash.data[:] = np.frombuffer(written.read_bytes(), np.uint8).reshape(flash.data.shape)
    assert resumed(library, flash) == 5
    net = library.net().made_up()
    assert net.load(flash.address) == 0
    assert net.steps(2).digest() & 0xFFFFFFFF == state_digest(program, 7)


def test_another_programs_state_gives_values(library, two_layers, flash, tmp_path):
    import edgetrain as et

    net = library.net().made_up().steps(2)
    assert net.save(flash.address) == 0
    image = tmp_path / "image.bin"
    image.write_bytes(flash.data.tobytes())
    wide = et.compile(two_layers, optimizer=et.Adam(lr=0.01), minibatch=4, threads=1)
    found = read_stored(image, wide)
    assert not found.exact
    np.testing.assert_array_equal(found.tensors["one.w"], net.value(0))
    states = [slot.name for slot in library.program.persistent if slot.role == "state"]
    assert found.anew and not any(found.tensors[name].any() for name in states)


@pytest.mark.parametrize("damage", ["empty", "short", "flipped"])
def test_a_damaged_file_is_refused_in_one_line(library, flash, tmp_path, damage):
    assert library.net().made_up().steps(1).save(flash.address) == 0
    data = bytearray(flash.data.tobytes())
    data = {"empty": b"", "short": bytes(data[:100]), "flipped": bytes(data[:80]) + b"!"}[damage]
    path = tmp_path / "state.bin"
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match="bytes without a good state"):
        read_stored(path, library.program)


def test_a_trainer_goes_on_where_a_device_stopped_and_back(library, flash, tmp_path):
    import edgetrain as et

    program = library.program
    draw = np.random.default_rng(7)
    x = draw.standard_normal((40, 6)).astype(np.float32)
    y = draw.integers(0, 3, 40)

    def fill(user, split, sample, to_x, to_y):
        label = np.array([y[sample]], np.int32)
        np.ctypeslib.ctypes.memmove(to_x, x[sample].ctypes.data, 24)
        np.ctypeslib.ctypes.memmove(to_y, label.ctypes.data, 4)
        return 0

    net = library.net()
    net.ask(fill, 40)
    assert net.settings(0.02, 2, 12, 3, 0, 0.0) == 0
    assert net.steps(4).save(flash.address) == 0
    image, back = tmp_path / "image.bin", tmp_path / "back.bin"
    image.write_bytes(flash.data.tobytes())
    cosine = et.Schedule("cosine", 3)

    def stop(event):
        if event["event"] == "step":
            trainer.interrupt()

    trainer = et.Trainer(program, (x, y), lr=0.02, schedule=cosine, on_event=stop)
    assert trainer.resume(image) and trainer.steps == 4
    with pytest.raises(CheckpointError, match=r"13 steps.*started for 12"):
        trainer.fit(steps=13)
    with pytest.raises(et.errors.Interrupted):
        trainer.fit(steps=12)
    assert trainer.steps == 5
    trainer.save_stored(back)
    trainer.close()
    flash.data[:] = np.frombuffer(back.read_bytes(), np.uint8).reshape(flash.data.shape)
    other = library.net()
    other.ask(fill, 40)
    assert other.load(flash.address) == 0
    assert other.steps(7).digest() == net.steps(8).digest()
    assert other.report().step == 12 and other.report().lr == net.report().lr


def test_the_state_of_another_program_is_said_to_give_values(library, two_layers, flash, tmp_path):
    import edgetrain as et

    assert library.net().made_up().steps(2).save(flash.address) == 0
    image, back = tmp_path / "image.bin", tmp_path / "back.bin"
    image.write_bytes(flash.data.tobytes())
    wide = et.compile(two_layers, optimizer=et.Adam(lr=0.01), minibatch=4, threads=1)
    events: list = []
    data = np.zeros((8, 6), np.float32), np.zeros(8, np.int64)
    trainer = et.Trainer(wide, data, on_event=events.append)
    assert trainer.resume(image)
    warnings = [event["message"] for event in events if event["event"] == "warning"]
    assert len(warnings) == 1 and "bits may differ" in warnings[0]
    trainer.save_stored(back, library.program)
    found = read_stored(back, library.program)
    assert found.exact and found.block[control.STEP] == 2
    np.testing.assert_array_equal(found.tensors["one.w"], library_value(library, flash, 0))
    trainer.close()


def library_value(library, flash, number: int) -> np.ndarray:
    """Return a value of the state in flash."""
    net = library.net()
    assert net.load(flash.address) == 0
    return net.value(number)
