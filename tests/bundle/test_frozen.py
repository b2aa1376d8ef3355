"""A bundle's frozen weights are constants outside its code; outputs that are not stored."""

import dataclasses
import shutil
import subprocess

import numpy as np
import pytest

import edgetrain as et
from edgetrain.api import bundle
from edgetrain.bundle import writing
from edgetrain.bundle.image import mapped_values
from edgetrain.bundle.writing import write_bundle
from edgetrain.errors import UsageError
from edgetrain.runtime.samples.check import state_digest
from tests.bundle.loaded import Loaded
from tests.quick import slow_between

STEPS = 5
CASES = {
    "fp32": {"frozen": "fp32", "train": ("two.*",)},
    "fp16": {"frozen": "fp16", "train": ("two.*",), "precision": "fp16"},
    "int8": {"frozen": "int8", "train": ("two.*",)},
    "int4": {"frozen": "int4", "train": ("one.*",), "precision": "fp16"},
    "lora": {"frozen": "int8", "lora": "r=2,targets=one.w,two.w"},
    "lora fp32": {"lora": "r=2,targets=two.w", "optimizer": et.Adam(lr=0.01)},
}


def compiled(model, **options):
    return et.compile(model, minibatch=8, microbatch=4, threads=1, **options)


@pytest.mark.parametrize("case", slow_between(CASES, 2))
def test_frozen_weights_are_constants_and_steps_have_the_bits_of_python(case, two_layers):
    program = compiled(two_layers, **CASES[case])
    assert program.mapped
    loaded = Loaded(program)
    assert loaded.image.nbytes - loaded.image.control_nbytes == program.arena_nbytes
    net = loaded.net().made_up().steps(STEPS)
    assert net.digest() & 0xFFFFFFFF == state_digest(program, STEPS)


@pytest.fixture(scope="module")
def frozen(two_layers, tmp_path_factory):
    """A bundle with frozen weights: its folder, manifest and Program."""
    program = compiled(two_layers, **CASES["int8"])
    folder = tmp_path_factory.mktemp("frozen")
    return folder, bundle(program, folder, name="two"), program


def test_files_say_what_frozen_weights_take(frozen):
    folder, manifest, program = frozen
    flash, nbytes = manifest["flash_nbytes"], program.mapped_nbytes
    assert flash["frozen"] == nbytes and manifest["ram_nbytes"]["arena"] == program.arena_nbytes
    assert flash["all"] == sum(n for part, n in flash.items() if part != "all")
    assert f"#define TWO_FROZEN {nbytes} /*" in (folder / "two.h").read_text()
    held = (folder / "libtwo.a").read_bytes()
    assert held.count(mapped_values(program)) == 1
    assert mapped_values(program) not in (folder / "two.weights").read_bytes()


def test_mapped_values_are_those_that_python_reads(frozen):
    program = frozen[2]
    values = mapped_values(program)
    assert len(values) == program.mapped_nbytes
    for slot in program.mapped:
        found = np.frombuffer(values, slot.format.dtype, len(program.init[slot.name]), slot.offset)
        np.testing.assert_array_equal(found, program.init[slot.name])


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc not installed")
def test_a_linked_program_reads_them_from_its_file(frozen, tmp_path):
    folder, manifest, _ = frozen
    for path in folder.iterdir():
        shutil.copy(path, tmp_path)
    subprocess.run(["make", "CC=gcc -Werror"], cwd=tmp_path, check=True, capture_output=True)
    done = subprocess.run(["./two", "check"], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.split() == [manifest["check"]["digest"]]


def test_more_than_can_be_linked_is_refused(frozen, tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "_MAPPED", 64)
    with pytest.raises(UsageError, match="bytes of frozen weights; expected at most 64"):
        bundle(frozen[2], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_more_than_offsets_of_32_bits_reach_is_refused(program, tmp_path, monkeypatch):
    big = dataclasses.replace(program, arena_nbytes=2**33)
    with pytest.raises(UsageError, match=r"8,589,934,592 bytes of memory to train in.* 4,294,967,"):
        write_bundle(big, tmp_path / "out", name="two", digest=lambda *_: 0)
    monkeypatch.setattr(writing, "_ADDRESSED", program.arena_nbytes + 1)
    slots = [dataclasses.replace(s, shape=(2**20,)) for s in program.persistent]
    with pytest.raises(UsageError, match="bytes of initial values; expected at most"):
        write_bundle(dataclasses.replace(program, persistent=tuple(slots)), tmp_path / "out",
                     name="two", digest=lambda *_: 0)  # fmt: skip
    assert not (tmp_path / "out").exists()


def test_outputs_that_are_not_kept_cannot_be_asked_for(program, tmp_path):
    output = dataclasses.replace(program.outputs["eval"][0], shape=(0, 3))
    program = dataclasses.replace(program, outputs={**program.outputs, "eval": (output,)})
    write_bundle(program, tmp_path, name="two", digest=lambda *_: 0)
    header = (tmp_path / "two.h").read_text()
    assert "There is no two_predict: outputs of shape [3] are computed" in header.replace(
        "\n  ", ""
    )
    assert "TWO_OUTPUT" not in header and "two_predict(" not in header
    assert b"two_predict" not in (tmp_path / "libtwo.a").read_bytes()
