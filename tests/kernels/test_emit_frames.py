"""Stack usage of emitted code, from LLVM's frame sizes and the call graph."""

import os

import llvmlite.binding as llvm
import pytest

from edgetrain.kernels import targets
from edgetrain.kernels.emission import frames as emit_frames
from edgetrain.kernels.emission import objects

TEXT = """
@table = internal constant [1 x ptr] [ptr @wide]
declare void @elsewhere(ptr)
define internal void @wide(i64 %n) noinline MARK {
  %p = alloca [200 x i64]
  call void @elsewhere(ptr %p)
  ret void
}
define internal void @"narrow one"(i64 %n) noinline MARK {
  %p = alloca [100 x i64]
  call void @elsewhere(ptr %p)
  ret void
}
define void @both(i64 %k) MARK {
  %p = alloca [50 x i64]
  call void @elsewhere(ptr %p)
  call void @"narrow one"(i64 %k)
  %q = getelementptr [1 x ptr], ptr @table, i64 0, i64 %k
  %f = load ptr, ptr %q
  call void %f(i64 %k)
  ret void
}
"""


@pytest.mark.parametrize("name", ["x86-64-v3", "aarch64", "armv7", "riscv64", "cortex-m7"])
def test_frames_are_what_functions_take_and_add_up_along_calls(name, capfd):
    machine = objects.new_machine(targets.get(name).processor)
    module = llvm.parse_assembly(TEXT.replace("MARK", emit_frames.MARK))
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    code, frames = emit_frames.emitted(machine, module)
    assert code[:4] == b"\x7fELF" and capfd.readouterr().err == ""
    local = {"wide": 1600, "narrow one": 800, "both": 400}
    assert all(0 <= frames[one] - nbytes <= 64 for one, nbytes in local.items()), frames
    found = emit_frames.deepest(str(module), frames, 8)
    assert found == frames["both"] + frames["wide"] + 16


# `long` starts before `short` but is first used after `short` has ended: they share a slot.
TWO_LIVES = """
declare void @elsewhere(ptr)
declare void @llvm.lifetime.start.p0(ptr)
declare void @llvm.lifetime.end.p0(ptr)
define void @both() MARK {
  %long = alloca [100 x i64]
  %short = alloca [100 x i64]
  call void @llvm.lifetime.start.p0(ptr %long)
  call void @llvm.lifetime.start.p0(ptr %short)
  call void @elsewhere(ptr %short)
  call void @llvm.lifetime.end.p0(ptr %short)
  call void @elsewhere(ptr %long)
  call void @llvm.lifetime.end.p0(ptr %long)
  ret void
}
"""


@pytest.mark.parametrize("name", ["x86-64-v3", "aarch64", "armv7", "riscv64", "cortex-m7"])
def test_a_module_is_emitted_twice_with_the_same_bytes(name):
    machine = objects.new_machine(targets.get(name).processor)
    module = llvm.parse_assembly(TWO_LIVES.replace("MARK", emit_frames.MARK))
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    text = str(module)
    first = emit_frames.emitted(machine, module)
    assert 800 <= first[1]["both"] <= 864  # one slot
    assert str(module) == text
    assert emit_frames.emitted(machine, module) == first


def test_calls_in_a_ring_are_counted_once():
    pairs = ("ab", "bc", "ca")
    text = "".join(f"define void @{a}() {{\n  call void @{b}()\n  ret void\n}}\n" for a, b in pairs)
    assert emit_frames.deepest(text, {"a": 16, "b": 32, "c": 64}, 0) == 112


def test_what_libraries_say_meanwhile_is_passed_on(capfd):
    with emit_frames._heard() as lines:
        os.write(2, b"warning: stack frame size (808) exceeds limit (0) in function 'f'\nmore\n")
    assert len(lines) == 1 and capfd.readouterr().err == "more\n"
