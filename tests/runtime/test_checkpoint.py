"""Checkpoints come back bit for bit, and damage to the newest costs only the newest."""

import os
import subprocess
import sys
import time

import numpy as np
import pytest

from edgetrain.errors import CheckpointError, RunError
from edgetrain.program.atomic import previous_of
from edgetrain.program.container import write_container
from edgetrain.runtime.run import checkpoint as ck

META = {"step": 3, "scale": 65536.0, "lr": 0.1, "cursor": [1, 200], "hash": "ab", "none": None}


def state(value):
    return {"conv.weight": np.full((2, 3), value, np.float32), "index": np.arange(4, dtype="u1")}


def damage(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def test_checkpoint_round_trips_bit_for_bit(tmp_path):
    path = tmp_path / "a.ckpt"
    bits = np.array([0x7FC00001, 0xFF800000, 1], np.uint32).view(np.float32)  # nan, -inf, subnormal
    ck.save_checkpoint(path, {"w": bits}, META)
    loaded = ck.load_checkpoint(path)
    assert loaded.tensors["w"].tobytes() == bits.tobytes()
    assert (loaded.meta, loaded.used, loaded.warning) == (META, path, None)


def test_load_checkpoint_falls_back_when_the_newest_is_damaged(tmp_path):
    path = tmp_path / "a.ckpt"
    for step in (1, 2, 3):
        ck.save_checkpoint(path, state(step), {"step": step})
    damage(path)
    loaded = ck.load_checkpoint(path)
    assert (loaded.meta, loaded.used) == ({"step": 2}, previous_of(path))
    assert "damaged" in loaded.warning and "older" in loaded.warning


def test_load_checkpoint_into_leaves_the_arena_alone_when_nothing_is_good(tmp_path):
    path = tmp_path / "a.ckpt"
    ck.save_checkpoint(path, state(1), {})
    arena = {"conv.weight": np.zeros((2, 3), np.float32)}
    assert ck.load_checkpoint(path, arena).tensors["conv.weight"] is arena["conv.weight"]
    assert (arena["conv.weight"] == 1).all()
    with pytest.raises(CheckpointError, match="another model or "):
        ck.load_checkpoint(path, {"other": np.zeros(1)})
    arena["conv.weight"][:] = 5
    damage(path)
    with pytest.raises(CheckpointError, match="damaged"):
        ck.load_checkpoint(path, arena)
    assert (arena["conv.weight"] == 5).all()


def test_load_checkpoint_falls_back_when_the_newest_is_missing(tmp_path):
    path = tmp_path / "a.ckpt"
    for step in (1, 2):
        ck.save_checkpoint(path, state(step), {"step": step})
    path.unlink()
    assert ck.load_checkpoint(path).meta == {"step": 1}


def test_save_checkpoint_does_not_push_a_damaged_file_over_the_good_previous(tmp_path):
    path = tmp_path / "a.ckpt"
    for step in (1, 2):
        ck.save_checkpoint(path, state(step), {"step": step})
    damage(path)
    ck.save_checkpoint(path, state(3), {"step": 3})
    damage(path)
    assert ck.load_checkpoint(path).meta == {"step": 1}


def test_load_checkpoint_reports_the_newest_when_none_is_good(tmp_path):
    path = tmp_path / "a.ckpt"
    with pytest.raises(CheckpointError, match="No such file"):
        ck.load_checkpoint(path)
    for step in (1, 2):
        ck.save_checkpoint(path, state(step), {"step": step})
    damage(path)
    damage(previous_of(path))
    with pytest.raises(CheckpointError, match=r"a\.ckpt: damaged"):
        ck.load_checkpoint(path)


@pytest.mark.parametrize("text", [{}, {"state": "[1]"}, {"state": "{"}, {"state": "[" * 100_000}])
def test_load_checkpoint_refuses_a_state_that_is_no_object(tmp_path, text):
    path = tmp_path / "a.ckpt"
    write_container(path, {}, text, kind=ck.KIND, version=ck.VERSION)
    with pytest.raises(CheckpointError, match="a.ckpt: (state: )?expected"):
        ck.load_checkpoint(path)


def test_load_checkpoint_refuses_a_program(tmp_path):
    path = tmp_path / "a.edge"
    write_container(path, {}, {}, kind="program", version=1)
    with pytest.raises(CheckpointError, match="kind 'program'; expected 'checkpoint'"):
        ck.load_checkpoint(path)


@pytest.mark.parametrize(("limit", "kept"), [(None, [1, 2, 3, 4]), (3, [2, 3, 4]), (1, [3, 4])])
def test_save_step_keeps_the_newest(tmp_path, limit, kept):
    (tmp_path / "other.ckpt").write_bytes(b"mine")
    for step in (1, 2, 3, 4):
        ck.save_step(tmp_path, step, state(step), {"step": step}, save_total_limit=limit)
    assert ck.step_files(tmp_path) == [tmp_path / f"step-{step:08d}.ckpt" for step in kept]
    assert ck.latest(tmp_path).meta == {"step": 4}
    assert (tmp_path / "other.ckpt").exists()


def test_save_step_removes_nothing_when_it_fails(tmp_path, monkeypatch):
    for step in (1, 2):
        ck.save_step(tmp_path, step, state(step), {"step": step})

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match="No space left"):
        ck.save_step(tmp_path, 3, state(3), {"step": 3}, save_total_limit=2)
    assert len(os.listdir(tmp_path)) == 2


def test_latest_passes_over_damaged_files(tmp_path):
    assert ck.latest(tmp_path) is None
    assert ck.latest(tmp_path / "none") is None
    for step in (9, 10, 123456789):
        ck.save_step(tmp_path, step, state(step), {"step": step})
    damage(ck.step_path(tmp_path, 123456789))
    loaded = ck.latest(tmp_path)
    assert (loaded.meta, loaded.used) == ({"step": 10}, ck.step_path(tmp_path, 10))
    assert "step-123456789.ckpt" in loaded.warning
    for path in ck.step_files(tmp_path):
        damage(path) if path != ck.step_path(tmp_path, 123456789) else None
    with pytest.raises(CheckpointError, match="step-123456789"):
        ck.latest(tmp_path)


def test_a_step_file_of_another_step_is_damaged(tmp_path):
    for step in (2, 4):
        ck.save_step(tmp_path, step, state(step), {"step": step})
    ck.save_step(tmp_path, 6, state(66), {"step": 66})
    loaded = ck.latest(tmp_path)
    assert loaded.meta == {"step": 4} and "step-00000006.ckpt: it holds step 66" in loaded.warning


def test_killed_saves_leave_a_good_checkpoint_and_no_litter(tmp_path):
    program = (
        "import sys, numpy as np\n"
        "from edgetrain.runtime.run.checkpoint import save_checkpoint\n"
        "for step in range(10**6):\n"
        "    save_checkpoint(sys.argv[1], {'w': np.full(100_000, step)}, {'step': step})\n"
        "    print(step, flush=True)\n"
    )
    path = tmp_path / "a.ckpt"
    for delay in (0.003, 0.011, 0.017):
        child = subprocess.Popen([sys.executable, "-c", program, path], stdout=subprocess.PIPE)
        with child:
            child.stdout.readline()
            time.sleep(delay)
            child.kill()
        loaded = ck.load_checkpoint(path)
        assert loaded.warning is None
        assert (loaded.tensors["w"] == loaded.meta["step"]).all()
    ck.save_checkpoint(path, {}, {})
    assert sorted(os.listdir(tmp_path)) == ["a.ckpt", "a.ckpt.previous"]


def test_save_step_keeps_what_it_wrote_though_later_ones_are_there(tmp_path):
    for step in (5, 6):
        ck.save_step(tmp_path, step, state(step), {"step": step})
    path = ck.save_step(tmp_path, 3, state(3), {"step": 3}, save_total_limit=2)
    assert path.exists() and len(ck.step_files(tmp_path)) == 3


def test_step_files_are_ordered_by_number_and_nothing_else_is_one(tmp_path):
    steps = [99_999_999, 100_000_000, 7]
    for name in (*(f"step-{step:08d}.ckpt" for step in steps), "step-00000009.ckpt.previous",
                 "step-9.ckpt", "my-step-00000009.ckpt"):  # fmt: skip
        (tmp_path / name).write_bytes(b"")
    found = [int(path.stem.removeprefix("step-")) for path in ck.step_files(tmp_path)]
    assert found == sorted(steps)


def test_latest_clears_what_a_killed_writer_left(tmp_path):
    ck.save_step(tmp_path, 1, state(1), {"step": 1})
    left = tmp_path / ".step-00000002.ckpt.edgetrain-0123abcd.tmp"
    left.write_bytes(b"half")
    assert ck.latest(tmp_path).meta == {"step": 1} and not left.exists()


def test_load_checkpoint_refuses_a_later_version(tmp_path):
    path = tmp_path / "a.ckpt"
    write_container(path, {}, {"state": "{}"}, kind=ck.KIND, version=ck.VERSION + 1)
    with pytest.raises(CheckpointError, match="Upgrade edgetrain"):
        ck.load_checkpoint(path)


def test_save_checkpoint_keeps_no_previous_unless_asked(tmp_path):
    path = tmp_path / "a.ckpt"
    for step in (1, 2):
        ck.save_checkpoint(path, state(step), {"step": step}, keep_previous=False)
    assert os.listdir(tmp_path) == ["a.ckpt"]
