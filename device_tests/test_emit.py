"""Emitted Programs on every processor, linked and run: the state has the same bits as here.

Required Debian packages: gcc-aarch64-linux-gnu, gcc-arm-linux-gnueabihf, gcc-riscv64-linux-gnu,
gcc-arm-none-eabi, qemu-user-static, qemu-system-arm.
"""

from collections.abc import Callable
from functools import cache, partial

import pytest

import edgetrain as et
from device_tests.emitting import Case, missing
from edgetrain.kernels import targets
from edgetrain.kernels.cache import jit
from edgetrain.kernels.linking.reading import undefined
from edgetrain.sparse import DSR
from tests.digits_runs import MODEL
from tests.fuzz.nets import NETS
from tests.planner import hurried
from tests.runtime.models import write_forked

REWIRED = {**NETS["sparse"][1], "rewiring": DSR(frequency=1.0, periods=((1.0, 2),))}
SGD = et.SGD(lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4)
# main.c is linked for these; test_bundle.py runs WebAssembly modules.
PROCESSORS = [name for name in targets.names() if not targets.get(name).module]


def _digits(folder):
    return et.load_onnx(MODEL)


def _dropout(folder):
    return et.load_onnx(write_forked(folder / "forked.onnx", 4, 2))


def _fuzzed(name: str, folder):
    return NETS[name][0]()


# Net -> function that builds its model in a folder, options.
CASES: dict[str, tuple[Callable, dict]] = {
    "digits": (_digits, {"optimizer": SGD}),
    "digits-fp16": (_digits, {"optimizer": SGD, "precision": "fp16"}),
    "dropout": (_dropout, {"precision": "fp16", "max_grad_norm": 1.0}),
    **{
        name: (partial(_fuzzed, name), {"max_grad_norm": 1.0, **NETS[name][1]})
        for name in ("mlp", "depthwise", "transposed", "lstm", "attention", "pools")
    },
    "sparse": (partial(_fuzzed, "sparse"), REWIRED),
    "sparse-fp16": (partial(_fuzzed, "sparse"), {**REWIRED, "precision": "fp16"}),
    "lstm-adam-fp16": (partial(_fuzzed, "lstm"), {"optimizer": "adam", "precision": "fp16"}),
}


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("emitted")


@cache
def _case(net: str, lanes_of: str, folder) -> tuple[Case, int]:
    """The net's Program for a target's lanes, and its checksum on this machine."""
    build, options = CASES[net]
    settings = {"minibatch": 8, "microbatch": 4, "threads": 1, **options}
    with hurried():
        case = Case(et.compile(build(folder), target=lanes_of, **settings))
    return case, case.expected()


def _planned_as(target: targets.Target) -> str:
    """The target to plan for: processors without vectors share one."""
    return "cortex-m7" if target.lanes == 1 else target.name


def _ready(name: str) -> targets.Target:
    target = targets.get(name)
    absent = missing(target)
    if absent:
        pytest.skip(f"{name}: {absent} not installed")
    if name == "x86-64-v4" and jit.host().lanes < 16:
        pytest.skip(f"{name}: this machine has no such vectors")
    return target


@pytest.mark.parametrize("name", PROCESSORS)
@pytest.mark.parametrize("net", CASES)
def test_emitted_code_has_the_bits_of_this_machine(net, name, folder):
    target = _ready(name)
    case, expected = _case(net, _planned_as(target), folder)
    for size in (False, True):
        ran = case.run(target, folder / f"{net}-{name}-{size}", size=size)
        assert set(ran.numbers["status"]) == {0}
        assert hex(ran.state) == hex(expected), f"size={size}"
        if net.startswith("digits"):  # only boards report their stack
            assert max(ran.numbers.get("stack", [0])) <= 8192


def test_a_program_of_vectors_has_its_bits_on_a_processor_without(folder):
    target = _ready("cortex-m4")
    case, expected = _case("digits-fp16", "aarch64", folder)
    assert case.run(target, folder / "foreign").state == expected


@pytest.mark.parametrize("name", targets.names())
def test_emitted_code_refers_to_nothing_but_itself(name, folder):
    case, _ = _case("digits-fp16", "cortex-m7", folder)
    for size in (False, True):
        assert undefined(case.emitted(targets.get(name), size=size).code) == set()
