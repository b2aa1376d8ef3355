"""The table of processors, and how a Program is checked against its target."""

import re

import llvmlite.binding as llvm
import pytest

import edgetrain as et
from edgetrain.errors import ProgramError, UsageError
from edgetrain.kernels import targets
from edgetrain.kernels.cache import jit
from edgetrain.kernels.emission import objects
from edgetrain.runtime.session import Session
from tests.digits_runs import MODEL, digits_program


def test_get_names_every_target_when_there_is_none_of_that_name():
    with pytest.raises(UsageError) as caught:
        targets.get("z80")
    message = str(caught.value)
    assert "'z80'" in message and all(name in message for name in targets.names())


@pytest.mark.parametrize("name", targets.TARGETS)
def test_triples_have_four_parts(name):
    target = targets.get(name)
    assert target.name == name and len(target.triple.split("-")) == 4
    assert target.lanes in targets.LANES


UNITS = """
define double @add(double %a, double %b) {
  %sum = fadd double %a, %b
  ret double %sum
}
define float @fused(float %a, float %b) {
  %sum = call float @llvm.fma.f32(float %a, float %b, float %b)
  ret float %sum
}
declare float @llvm.fma.f32(float, float, float)
"""


def called(target: targets.Target) -> str:
    """Assembly of a float64 sum and a fused product, which are calls if the target has no unit."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    found = llvm.Target.from_triple(target.triple)
    machine = found.create_target_machine(cpu=target.cpu, features=target.features)
    module = llvm.parse_assembly(f'target triple = "{target.triple}"\n{UNITS}')
    return machine.emit_assembly(module)


@pytest.mark.parametrize("name", targets.TARGETS)
def test_units_of_a_row_are_those_that_llvm_knows(name):
    """A row that wrongly claims a unit would get LLVM's calls, and "in hardware" in a manifest."""
    target = targets.get(name)
    text = called(target)
    double = re.search(r"\b_*(?:aeabi_dadd|adddf3)\b", text) is None
    assert (target.fp64, target.fma) == (double, re.search(r"\bfmaf\b", text) is None)


def test_a_row_that_claims_a_unit_is_found_out():
    m33 = targets.get("cortex-m33")
    assert not m33.fp64 and "aeabi_dadd" in called(m33)


def test_host_is_what_kernels_are_compiled_for():
    assert targets.get("host").processor is jit.host()
    assert targets.host().lanes == jit.host().lanes


def test_a_program_says_what_it_was_planned_for(tmp_path):
    program = digits_program(target="cortex-m7")
    assert (program.recipe["target"], program.recipe["lanes"], program.threads) == (
        "cortex-m7", 1, 1,
    )  # fmt: skip
    assert {variant for _, variant, _ in program.kernels} <= {"plain", "scalar"}
    loaded = et.load_program(program.save(tmp_path / "m7.edge"))
    Session(loaded).close()  # runs here, with the host's kernels


def test_a_program_is_held_against_its_own_target(tmp_path):
    program = digits_program(target="cortex-m7")
    program.recipe["lanes"] = 16  # which would need other variants
    with pytest.raises(ProgramError, match="is not the variant its integers require"):
        Session(program)


def test_threads_are_refused_on_a_processor_that_has_one():
    with pytest.raises(UsageError, match="cortex-m4 has only one"):
        et.compile(et.load_onnx(MODEL), target="cortex-m4", threads=2)


def _takes_all_registers() -> str:
    """Return a function with 40 integers alive at once, more than there are registers."""
    places = [f"  %p{k} = getelementptr i64, ptr %p, i64 {k}" for k in range(40)]
    loads = [f"  %v{k} = load volatile i64, ptr %p{k}" for k in range(40)]
    stores = [f"  store volatile i64 %v{k}, ptr %p{39 - k}" for k in range(40)]
    lines = "\n".join((*places, *loads, *stores))
    return f"define void @all(ptr %p) {{\n{lines}\n  ret void\n}}\n"


@pytest.mark.parametrize("relocation", ["pic", "static"])
def test_aarch64_leaves_x18_to_the_system(relocation):
    machine = objects.new_machine(targets.get("aarch64").processor, relocation)
    module = llvm.parse_assembly(_takes_all_registers())
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    written = machine.emit_assembly(module)
    named = {int(number) for number in re.findall(r"\b[wx](\d+)\b", written)}
    assert named == set(range(31)) - {18}
