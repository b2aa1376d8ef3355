"""Every kind of net as a bundle for every target: linked, run, and the digest of its state held
against this Program's in Python's runtime."""

import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import torch

import edgetrain as et
from device_tests.boards import (
    TICK,
    board_files,
    checked,
    compiler_of,
    made,
    missing,
    ran,
    said,
)
from edgetrain.api import bundle
from edgetrain.exporters import export_torch
from edgetrain.kernels import targets
from edgetrain.losses import Loss
from edgetrain.program import Program
from edgetrain.runtime.check import state_digest
from edgetrain.sparse import DSR
from examples.zoo import ZOO
from tests.digits_runs import MODEL
from tests.runtime.models import write_forked

pytestmark = pytest.mark.slow
README = Path(__file__).resolve().parents[1] / "README.md"
STEPS, SPIKE = 20, 60000  # sample 0 overflows in fp16: its minibatches are skipped
SGD = et.SGD(lr=0.02, momentum=0.9, nesterov=True, weight_decay=5e-4)
KINDS = {
    "fp32": ("digits", {"optimizer": SGD}),
    "fp16": ("digits", {"optimizer": SGD, "precision": "fp16"}),
    "sparse": ("digits", {
        "optimizer": SGD, "precision": "fp16", "density": 0.3,
        "rewiring": DSR(periods=((1.0, 8),)),
    }),
    "adam": ("forked", {"optimizer": et.AdamW(lr=1e-3), "precision": "fp16"}),
    "dropout": ("forked", {"optimizer": SGD}),
    "lstm": ("lstm_language_model", {"optimizer": SGD}),
    "attention": ("transformer_encoder", {"optimizer": et.Adam(lr=1e-3)}),
    "depthwise": ("mobilenet_v2", {"optimizer": SGD, "precision": "fp16"}),
}  # fmt: skip
TARGETS = [name for name in targets.names() if name != "host"]


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """ONNX files and losses by name."""
    folder = tmp_path_factory.mktemp("models")

    @cache
    def model(name: str):
        if name == "digits":
            return MODEL, Loss("cross_entropy")
        path = folder / f"{name}.onnx"
        if name == "forked":
            return write_forked(path), Loss("cross_entropy")
        entry = ZOO[name]
        torch.manual_seed(0)
        example = entry.example_inputs(2, "small")
        export_torch(entry.build("small"), example, path, batch_dim=entry.batch_dim)
        ignored = -100 if entry.ignore_index is None else entry.ignore_index
        return path, Loss(entry.loss, ignore_index=ignored)

    return model


@pytest.fixture(scope="session")
def programs(models):
    """(Program, its digest after STEPS) of a kind for targets of so many lanes."""

    @cache
    def program(kind: str, lanes: int) -> tuple[Program, int]:
        name, options = KINDS[kind]
        path, loss = models(name)
        planned = {1: "cortex-m7", 4: "aarch64", 8: "x86-64-v3", 16: "x86-64-v4"}[lanes]
        found = et.compile(
            et.load_onnx(path), loss=loss, minibatch=8, microbatch=4, threads=1, target=planned,
            **options,
        )  # fmt: skip
        return found, state_digest(found, STEPS, SPIKE if "precision" in options else 1)

    return program


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_bundle_has_the_bits_of_the_runtime(kind, target, programs, tmp_path):
    processor = targets.get(target)
    if missing(processor):
        pytest.skip(missing(processor))
    program, expected = programs(kind, processor.lanes)
    bundle(program, tmp_path, target=target, size=target == "cortex-m4")
    spike = SPIKE if "precision" in KINDS[kind][1] else 1
    assert checked(tmp_path, processor, "net", STEPS, spike) == expected


@pytest.mark.parametrize("threads", [1, 2])
def test_the_host_has_the_bits_of_the_runtime(threads, tmp_path):
    program = et.compile(et.load_onnx(MODEL), optimizer=SGD, threads=threads, minibatch=16)
    bundle(program, tmp_path)
    found = checked(tmp_path, targets.host(), "net", STEPS)
    assert found == state_digest(program, STEPS)


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """The digits in fp16 at the least budget, with samples, for a Cortex-M: folder by mode."""
    options = {
        "optimizer": et.SGD(lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4),
        "minibatch": 32, "precision": "fp16", "target": "cortex-m7",
    }  # fmt: skip
    model = et.load_onnx(MODEL)
    with pytest.raises(et.errors.BudgetError) as least:
        et.compile(model, budget=1000, **options)
    program = et.compile(model, budget=least.value.min_budget_nbytes, **options)

    @cache
    def folder(target: str, size: bool) -> Path:
        out = tmp_path_factory.mktemp("digits")
        bundle(program, out, name="digits", target=target, size=size, data=et.open_data("digits"))
        return out

    return folder


@pytest.mark.parametrize("target", ["cortex-m7", "cortex-m4"])
def test_the_digits_train_in_58_kib_of_ram_with_the_stack(target, small):
    processor = targets.get(target)
    if missing(processor):
        pytest.skip(missing(processor))
    folder = small(target, True)
    board_files(folder, processor, "digits")
    made(folder, processor, ["CHECK", "STEPS=3"])
    text = ran(folder, processor, "digits")
    ram = said(text, "ram") + said(text, "stack")
    instructions = said(text, "ticks") * TICK / (3 * 32)
    flash = subprocess.run(
        [compiler_of(processor).replace("gcc", "size"), folder / "digits"], capture_output=True,
        text=True,
    ).stdout.split()[6]  # fmt: skip
    print(f"{target}: RAM {ram}, flash {flash}, {instructions:.0f} instructions a sample")
    assert ram <= 59392
    assert int(flash) <= (46080 if target == "cortex-m7" else 56000)


def test_the_digits_are_learned_on_an_emulated_cortex_m7(small):
    processor = targets.get("cortex-m7")
    if missing(processor):
        pytest.skip(missing(processor))
    folder = small("cortex-m7", False)
    board_files(folder, processor, "digits")
    made(folder, processor, ['SAMPLES=\\"digits.samples\\"', "STEPS=220"])
    assert said(ran(folder, processor, "digits"), "accuracy*10000") >= 9750


def test_fifty_power_cuts_on_an_emulated_cortex_m7(small, tmp_path):
    processor = targets.get("cortex-m7")
    if missing(processor):
        pytest.skip(missing(processor))
    folder = tmp_path / "cuts"
    shutil.copytree(small("cortex-m7", False), folder)
    board_files(folder, processor, "digits")
    shutil.copy(Path(__file__).with_name("cuts.c"), folder / "main.c")
    made(folder, processor, ["CUTS=50", "STORE"])
    assert "outlived all" in ran(folder, processor, "digits")


def test_the_readmes_lines_of_c_are_c(small):
    processor = targets.get("cortex-m7")
    if missing(processor):
        pytest.skip(missing(processor))
    folder = small("cortex-m7", True)
    (lines,) = re.findall(r"^```c\n(.*?)^```", README.read_text(), re.M | re.S)
    memory, body = lines.split("\n", 1)
    (folder / "readme.c").write_text(
        f'#include "digits.h"\n{memory}\n'
        "int train(digits_fill *fill, digits_store store);\n"
        f"int train(digits_fill *fill, digits_store store) {{\n{body}  return 0;\n}}\n"
    )
    given = [compiler_of(processor), "-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    subprocess.run([*given, "-c", "readme.c"], cwd=folder, check=True)


def test_two_nets_are_linked_into_one_program(tmp_path):
    programs = [et.compile(et.load_onnx(MODEL), threads=1, minibatch=m) for m in (8, 16)]
    for name, program in zip(("one", "two"), programs, strict=True):
        bundle(program, tmp_path, name=name)
    (tmp_path / "both.cpp").write_text(
        '#include "one.h"\n#include "two.h"\n#include <cstdio>\n'
        "static double a[ONE_MEMORY / 8 + 1], b[TWO_MEMORY / 8 + 1];\n"
        "int main() {\n  one *x = one_init(a, sizeof a);\n  two *y = two_init(b, sizeof b);\n"
        '  std::printf("%08x %08x\\n", one_digest(x), two_digest(y));\n}\n'
    )
    given = ["g++", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-o", "both", "both.cpp"]
    subprocess.run([*given, "libone.a", "libtwo.a"], cwd=tmp_path, check=True)
    out = subprocess.run([tmp_path / "both"], capture_output=True, text=True, check=True).stdout
    expected = [f"{state_digest(program, 0):08x}" for program in programs]
    assert out.split() == expected


_PEAK = """
import os, sys, subprocess
child = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, used = os.wait4(child.pid, 0)
print(used.ru_maxrss, status)
"""


def test_a_static_linux_binary_takes_the_arena_and_half_a_megabyte(tmp_path):
    if shutil.which("musl-gcc") is None:
        pytest.skip("musl-gcc not installed; on Debian: apt install musl-tools")
    program = et.compile(et.load_onnx(MODEL), optimizer=SGD, threads=1, minibatch=32)
    bundle(program, tmp_path, name="digits", cc="musl-gcc", data=et.open_data("digits"))
    peak = subprocess.run(
        [sys.executable, "-c", _PEAK, tmp_path / "digits", tmp_path / "digits.samples", "200"],
        capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    assert peak[1] == "0" and int(peak[0]) * 1024 - program.arena_nbytes <= 500_000
