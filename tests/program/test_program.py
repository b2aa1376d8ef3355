"""The Program file: everything comes back; any damage is a ProgramError."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest

import edgetrain as et
from edgetrain.api import compile as compile_
from edgetrain.errors import ProgramError
from edgetrain.kernels import targets
from edgetrain.program import KIND, VERSION, Program
from edgetrain.program.container import read_container, write_container
from edgetrain.program.program import VERSIONS
from edgetrain.runtime.loading.program import load_program
from edgetrain.runtime.session import Session

from ..compiler.nets import Net, conv_bn_relu_conv

pytestmark = pytest.mark.usefixtures("quick_planner")


@pytest.fixture(scope="module")
def program():
    return compile_(conv_bn_relu_conv(), minibatch=8, optimizer="adam", freeze=["fc.b"])


@pytest.fixture
def path(program, tmp_path):
    return program.save(tmp_path / "m.edge")


def test_program_round_trip_keeps_every_field(program, path):
    found = load_program(path)
    for field in dataclasses.fields(Program):
        ours, theirs = getattr(program, field.name), getattr(found, field.name)
        if field.name in ("tapes", "init"):
            assert ours.keys() == theirs.keys()
            for name, array in ours.items():
                np.testing.assert_array_equal(theirs[name], array, err_msg=name)
                assert theirs[name].dtype == array.dtype
        elif field.name in ("recipe", "account", "limits", "aliases"):
            assert json.loads(json.dumps(ours)) == theirs
        else:
            assert ours == theirs, field.name


def test_loaded_program_runs_as_the_compiled_one(program, path):
    x = np.random.default_rng(0).standard_normal((8, 2, 5, 5)).astype(np.float32)
    outputs = []
    for each in (program, load_program(path)):
        session = Session(each)
        outputs.append(session.predict({"x": x}))
        session.close()
    np.testing.assert_array_equal(*outputs)


def test_a_program_whose_output_is_one_number_is_read_again(tmp_path):
    net = Net(4)
    x = net.add("MatMul", ["x", net.weight("w", 4, 3)], "y")
    x = net.add("ReduceSumSquare", [x], "loss", keepdims=0)
    whole = compile_(net.model(x), loss="output", minibatch=4, microbatch=2)
    found = load_program(whole.save(tmp_path / "m.edge"))
    assert found.outputs == whole.outputs and "one number" in found.unpredicted


def test_program_has_no_state_for_what_is_frozen(program):
    names = {slot.name for slot in program.persistent}
    assert "fc.b" in names and not any(name.startswith("fc.b.") for name in names)


def test_running_a_program_imports_neither_onnx_nor_the_compiler(path):
    """numba imports the top of scipy itself, but nothing of it that the planner uses."""
    code = (
        "import sys; from edgetrain.runtime.loading.program import load_program;"
        "from edgetrain.runtime.session import Session; import numpy as np;"
        f"s = Session(load_program({str(path)!r}));"
        "s.predict({'x': np.zeros((8, 2, 5, 5), np.float32)}); s.close();"
        "bad = {'onnx', 'scipy.optimize', 'scipy.sparse', 'torch',"
        "'edgetrain.compiler.passes.autodiff', 'edgetrain.compiler.plan.frontier',"
        " 'edgetrain.importer'} & set(sys.modules);"
        "sys.exit(f'imported {sorted(bad)}' if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_load_refuses_what_is_not_there_or_not_a_program(tmp_path):
    for data in (b"", b"hello" * 100, b"\xff" * 64):
        (tmp_path / "m.edge").write_bytes(data)
        with pytest.raises(ProgramError):
            load_program(tmp_path / "m.edge")
    with pytest.raises(ProgramError):
        load_program(tmp_path / "gone.edge")


def test_load_refuses_every_flipped_byte(path):
    data, rng = path.read_bytes(), np.random.default_rng(1)
    for at in [*range(16), *rng.choice(len(data), 40, replace=False)]:
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
        with pytest.raises(ProgramError):
            load_program(path)


def test_load_refuses_every_truncation(path):
    data = path.read_bytes()
    for length in range(0, len(data), len(data) // 23):
        path.write_bytes(data[:length])
        with pytest.raises(ProgramError):
            load_program(path)


@pytest.mark.parametrize(
    "version, move",
    [
        (VERSION + 1, "Upgrade"),
        (VERSIONS[0] - 1, "Compile the model again"),
        (1, "Compile the model"),
    ],
)
def test_load_refuses_another_version(path, version, move):
    tensors, meta = read_container(path, kind=KIND, versions=range(VERSION, VERSION + 1))
    write_container(path, tensors, meta, kind=KIND, version=version)
    with pytest.raises(ProgramError, match=f"version {version}; this build reads .*{move}"):
        load_program(path)


def test_a_program_names_its_target(program):
    """Never `host`, which is another processor elsewhere, if a target has its vectors."""
    named = targets.named(targets.HOST)
    assert (program.recipe["target"], program.recipe["lanes"]) == (named, targets.host().lanes)
    assert named == targets.HOST or targets.get(named).lanes == targets.host().lanes


def _set(*keys, value):
    def change(fields):
        at = fields
        for key in keys[:-1]:
            at = at[key]
        at[keys[-1]] = value

    return change


LIES = {
    "no control block": lambda f: f["persistent"].pop(
        next(k for k, s in enumerate(f["persistent"]) if s["name"] == "ctl")
    ),
    "a missing field": lambda f: f.pop("kernels"),
    "negative offset": _set("persistent", 0, "offset", value=-64),
    "huge shape": _set("persistent", 0, "shape", value=[2**40]),
    "words for numbers": _set("microbatch", value="eight"),
    "microbatch of 3": _set("microbatch", value=3),
    "no threads": _set("threads", value=0),
    "target elsewhere": _set("targets", "micro", "offset", value=2**40),
    "target of another size": _set("targets", "micro", "shape", value=[9]),
    "no evaluation": lambda f: f["targets"].pop("eval"),
    "unknown dtype": _set("persistent", 0, "dtype", value="f8"),
    "unknown kernel": _set("kernels", 0, 0, value="rm"),
    "interpreter as kernel": _set("kernels", 0, 0, value="run_tape"),
    "storages": _set("kernels", 0, 2, value=["f32"] * 9),
    "unknown storage": lambda f: f["kernels"][0].__setitem__(2, ["f99"] * len(f["kernels"][0][2])),
    "small arena": _set("arena_nbytes", value=64),
    "huge arena": _set("arena_nbytes", value=2**70),
    "recipe": _set("recipe", value={}),
}


@pytest.mark.parametrize("lie", LIES)
def test_program_that_lies_is_refused_before_it_runs(path, lie):
    """The checksum is right, but the content is not."""
    tensors, meta = read_container(path, kind=KIND, versions=range(VERSION, VERSION + 1))
    fields = json.loads(meta["program"])
    LIES[lie](fields)
    meta["program"] = json.dumps(fields)
    write_container(path, tensors, meta, kind=KIND, version=VERSION)
    with pytest.raises(ProgramError):
        Session(load_program(path)).close()


ARRAYS = {
    "float64": lambda array: array.astype(np.float64),
    "float16": lambda array: array.astype(np.float16),
    "integers": lambda array: array.astype(np.int32),
    "rows of bytes": lambda array: array.view(np.uint8),
    "flat": lambda array: array.reshape(-1),
}


@pytest.mark.parametrize("array", ARRAYS)
def test_initial_values_of_another_type_or_shape_are_refused(path, array):
    """They are never converted: a NaN would become any integer."""
    tensors, meta = read_container(path, kind=KIND, versions=range(VERSION, VERSION + 1))
    weights = next(n for n, a in tensors.items() if n.startswith("init.") and a.ndim > 1)
    tensors[weights] = ARRAYS[array](tensors[weights])
    write_container(path, tensors, meta, kind=KIND, version=VERSION)
    with pytest.raises(ProgramError, match=f"'{weights}': no slot has its shape and type"):
        load_program(path)


@pytest.mark.parametrize("number", [np.nan, np.inf, -1])
def test_loss_weights_that_are_no_weights_are_refused(tmp_path, number):
    net = Net(3)
    model = net.model(*(net.add("MatMul", ["x", net.weight(n, 3, 2)], f"y{n}") for n in "ab"))
    losses = {"ya": "cross_entropy", "yb": et.Loss("mse", weight=0.5)}
    path = compile_(model, losses=losses, minibatch=4).save(tmp_path / "m.edge")
    tensors, meta = read_container(path, kind=KIND, versions=range(VERSION, VERSION + 1))
    tensors["init.loss.weights"] = np.array([1, number], np.float32)
    write_container(path, tensors, meta, kind=KIND, version=VERSION)
    with pytest.raises(ProgramError, match=r"'init.loss.weights': expected float32 numbers of at"):
        load_program(path)


@pytest.mark.parametrize("word", range(0, 40, 3))
def test_tape_with_a_changed_word_is_refused_or_stays_inside(program, word):
    """Whatever an instruction's words say, the memory it touches is checked against the arena."""
    for value in (-1, 2**40, program.arena_nbytes):
        tape = program.tapes["micro"].copy()
        tape[word] = value
        changed = dataclasses.replace(program, tapes={**program.tapes, "micro": tape})
        try:
            session = Session(changed)
        except ProgramError:
            continue
        session.close()
