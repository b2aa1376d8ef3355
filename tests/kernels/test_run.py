"""Kernels in plain Python: same bits as compiled, and faults in kernels are found."""

import linecache
import os
import re
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest

from edgetrain.errors import UsageError
from edgetrain.kernels import registry
from edgetrain.kernels.run import __main__ as command
from edgetrain.kernels.run import arithmetic, calls
from edgetrain.kernels.run.execution import difference, interpret, run_compiled
from edgetrain.kernels.run.faults import KernelFault
from edgetrain.kernels.run.functions import interpreted, interpreting
from edgetrain.kernels.run.memory import Memory, Region

from . import harness, test_rewire
from .harness import declared

ROOT = Path(__file__).parents[2]

# One or two kernels of each family, in formats that other tests compile too.
FAMILIES = {
    "attention": {"attention.plain": {v: "f32" for v in "QKVBY"}},
    "blocks": {"unpack.plain": {"W": "q8", "S": "f32"}},
    "conv": {"conv.narrow": {"S": "f32", "W": "f32"}, "conv_csr.plain": {"S": "f32", "W": "f32"}},
    "step_loop": {"rate_cosine.plain": {}},
    "elementwise": {"un_gelu.plain": {"S": "f32"}, "dropout.plain": {"S": "f32"}},
    "gemm": {"gemm.tiles16": {v: "f32" for v in "ABC"}},
    "indexing": {"gather.plain": {}},
    "losses": {"ce_loss.plain": {"S": "f32"}},
    "norm": {"bn_stats.fast": {"S": "f32"}, "layer_norm.fast": {"S": "f16"}},
    "optim": {"adam.plain": {"W": "f16", "G": "f16", "M": "f16", "V": "f16"}},
    "optimizers": {"grad_sumsq.wide": {"G": "f32"}},
    "pool": {"maxpool.fast": {"S": "f32"}},
    "recurrent": {"rnn.plain": {v: "f32" for v in "WVPS"}},
    "reductions": {"softmax.plain": {"S": "f32"}},
    "winograd": {
        "winograd.plain": {"S": "f32", "W": "f32"},
        "winograd_csr.plain": {"S": "f32", "W": "f32"},
        "winograd_csr_dx.plain": {"S": "f32", "W": "f32"},
    },
}
OTHERS = {
    "sparse": "trusts tables: test_a_rewiring_is_the_same_interpreted",
    "tapes": "calls through pointers: test_a_tape_is_walked_through_pointers",
    "device": "takes addresses of a board",
}


def both_ways(call: calls.Call, nthreads: int = 2) -> str:
    """Return the first difference between the interpreted and compiled call, or ""."""
    places, expected = call.copied(), call.copied()
    interpret(call.kernel, call.storages, places, call.values, nthreads, call.lanes)
    run_compiled(call.kernel, call.storages, expected, call.values, nthreads, call.lanes)
    return difference(call.kernel, call.storages, places, expected)


def kernels() -> list[registry.Kernel]:
    found = (kernel for name in registry.names() for kernel in registry.variants(name))
    return [kernel for kernel in found if not kernel.module.startswith("tests.")]


def labelled(label: str) -> registry.Kernel:
    return next(k for k in registry.variants(label.partition(".")[0]) if k.label == label)


def test_every_family_is_interpreted() -> None:
    assert {kernel.family for kernel in kernels()} == FAMILIES.keys() | OTHERS.keys()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_gives_the_bits_of_the_compiled_kernel(family: str) -> None:
    for label, storages in FAMILIES[family].items():
        kernel = labelled(label)
        assert kernel.family == family
        known = {v: storages[v] for v in kernel.spec.variables if v in storages}
        assert both_ways(calls.made(kernel, 0, known)) == "", label


@pytest.mark.parametrize("label", ["conv_dw.plain", "csr_adam.wide", "csr_adan.wide"])
def test_calls_of_other_seeds_give_the_bits_of_the_compiled_kernel(label: str) -> None:
    """float() keeps a float32; the slots that an update takes are inside the pool."""
    for seed in range(2, 6):
        assert both_ways(calls.made(labelled(label), seed)) == "", seed


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_all_kernels_give_the_bits_of_the_compiled_ones(family: str) -> None:
    wrong = {}
    for kernel in kernels():
        if kernel.family != family or any(
            o.range is not None and o.range.kind == "host" for o in kernel.spec.operands
        ):
            continue
        for seed in (1, 2):
            found = both_ways(calls.made(kernel, seed))
            if found:
                wrong[kernel.label, seed] = found
    assert wrong == {}


def test_a_rewiring_is_the_same_interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of sparse weights, each run on the output of the previous one."""
    layers, state = test_rewire.make_pool([(4, 3, 3, 3)], 0.4)
    settings = {"fraction": 0.3, "step": 1, "threads": 2}
    compiled = test_rewire.rewire(layers, state, **settings)
    monkeypatch.setattr(harness, "INTERPRET", True)
    found = test_rewire.rewire(layers, state, **settings)
    assert {k: v.tobytes() for k, v in found.items()} == {
        k: v.tobytes() for k, v in compiled.items()
    }


def test_a_tape_is_walked_through_pointers() -> None:
    """`run_tape` calls the table's functions with the words of each instruction."""
    memory, seen = Memory(), []
    memory.functions[4096] = lambda *operands: seen.append([int(o) for o in operands])
    code = np.array([0, 2, 10, 11, 0, 1, 12], np.int64).view(np.uint8)
    table = np.array([4096], np.int64).view(np.uint8)
    places = [memory.add(Region(name, place, 8)) for name, place in (("c", code), ("t", table))]
    start = places[0].address
    kernel = registry.variants("run_tape")[0]
    record = [77, start, start + code.size, places[1].address, 0]
    names = [name for name, _ in kernel.spec.fields]
    operands = namedtuple("Operands", names)(*map(np.int64, record))
    with interpreting(memory):
        interpreted(kernel.function({}))(np.int64(0), np.int64(1), operands)
    assert seen == [[77, start + 16, 0, 1], [77, start + 48, 0, 1]]


def planted(text: str, operands: str = "x:r:f32[n] y:w:f32[n] ws:t[n*4] n") -> registry.Kernel:
    """Return a kernel with body `text`, which may use the language's intrinsics."""
    from edgetrain.kernels.language import block, number, prim, vector

    scope = {
        "ld": prim.FP32.ld, "st": prim.FP32.st, "vld": vector.loads(prim.FP32),
        "vst": vector.stores(prim.FP32), "where": number.where, "new": block.new,
        "get": block.get, "put": block.put,
    }  # fmt: skip
    body = "\n".join(f"    {line}" for line in text.split("\n"))
    source = f"def run(thread, nthreads, args):\n{body}\n"
    # Kernels are compiled from their source, which is found the way debuggers find it.
    linecache.cache["planted.py"] = len(source), None, source.splitlines(True), "planted.py"
    exec(compile(source, "planted.py", "exec"), scope)
    return declared("planted", operands, lambda: scope["run"])


FAULTS = {
    "for i in range(args.n):\n    st(args.y, i, ld(args.x, i + 1))": (
        r"x\[8\] read .*from 0 to 7, at planted.py:3"
    ),
    "st(args.y, -1, ld(args.x, 0))": r"y\[-1\] written .*from 0 to 7, at planted.py:2",
    "st(args.x, 0, ld(args.x, 1))": r"x\[0\] written; expected read-only access, at planted.py:2",
    "st(args.y, 0, ld(args.x + 2, 0))": r"x\[0\] \+ 2 bytes read with alignment 4.*2 bytes off",
    "st(args.y, 0, ld(args.ws, 3))": (
        r"y\[0\] has bytes that were never written: ws\[3\], read at planted.py:2"
    ),
    "st(args.ws, 0, ld(args.x, 0))\nst(args.y, 1, ld(args.ws, 0) + ld(args.ws, 1))": (
        r"y\[1\] has bytes that were never written: ws\[1\], read at planted.py:3"
    ),
    "if ld(args.ws, 0) > ld(args.x, 0):\n    st(args.y, 0, ld(args.x, 0))": (
        r"a branch depends on bytes that were never written: ws\[0\], read at planted.py:2"
    ),
    "buffer = new()\nput(buffer, 0, ld(args.x, 0))\nst(args.y, 0, get(buffer, 1))": (
        r"y\[0\] has bytes that were never written: buffer of run\[1\], read at planted.py:4"
    ),
    "st(args.y, 0, ld(0, 5))": r"address 0x14 read.*absent operand has address 0.*planted.py:2",
    "vst(args.y, 0, vld(args.x, 0), 4)": r"x\[8\] read \(64 bytes from x\[0\]\)",
}


@pytest.mark.parametrize("text", FAULTS)
def test_a_planted_fault_is_found_with_its_line(text: str) -> None:
    places = {name: np.zeros(32, np.uint8) for name in ("x", "y")}
    with pytest.raises(KernelFault, match=f"kernel planted.plain: {FAULTS[text]}"):
        interpret(planted(text), {}, places, {"n": 8})


def test_lanes_that_are_not_used_may_be_unwritten() -> None:
    """A vector of which only four lanes are stored, and a number that `where` discards."""
    body = (
        "for i in range(4):\n    st(args.ws, i, ld(args.x, i))\n"
        "vst(args.y, 0, vld(args.ws, 0) + vld(args.ws, 0), 4)\n"
        "st(args.y, 4, where(ld(args.x, 0) > 0, ld(args.x, 0), ld(args.ws, 9)))"
    )
    kernel = planted(body, "x:r:f32[n] y:w:f32[n] ws:t[64] n")
    x, y = np.arange(1, 9, dtype=np.float32), np.zeros(8, np.float32)
    interpret(kernel, {}, {"x": x.view(np.uint8), "y": y.view(np.uint8)}, {"n": 8})
    assert y.tolist() == [2, 4, 6, 8, 1, 0, 0, 0]


def _fused(kind: str):
    from edgetrain.kernels.language import number, prim

    ld, st, fma = prim.FP32.ld, prim.FP32.st, number.fma
    if kind == "f64":
        ld, st = prim.ld_f64, prim.st_f64

    def run(thread, nthreads, args):
        for i in range(args.n):
            st(args.y, i, fma(ld(args.a, i), ld(args.b, i), ld(args.c, i)))

    return run


def _triples(rng: np.random.Generator, dtype, count: int) -> list[np.ndarray]:
    """Random bits, and sums almost halfway between two numbers."""
    word = np.uint32 if dtype == np.float32 else np.uint64
    a, b, c = (rng.integers(0, np.iinfo(word).max, count, word, True).view(dtype) for _ in "abc")
    near = np.arange(count) % 2 == 0
    with np.errstate(all="ignore"):
        a, b = (np.where(near, rng.standard_normal(count).astype(dtype), v) for v in (a, b))
        scale = dtype(2.0) ** rng.integers(-60, 60, count).astype(dtype)
        c = np.where(near, np.where(count % 3 == 0, -a * b, a * b * scale), c)
    return [a, b, c.astype(dtype)]


@pytest.mark.parametrize(
    ("kind", "count"),
    [("f32", 10**5), ("f64", 3000), pytest.param("f32", 10**7, marks=pytest.mark.slow)],
)
def test_fma_is_rounded_once_as_the_processor_does(kind: str, count: int, rng) -> None:
    dtype = np.float32 if kind == "f32" else np.float64
    form = f"a:r:{kind}[n] b:r:{kind}[n] c:r:{kind}[n] y:w:{kind}[n] n"
    kernel = declared(f"fused_{kind}", form, lambda: _fused(kind))
    a, b, c = _triples(rng, dtype, count)
    y = np.empty(count, dtype)
    places = {n: v.view(np.uint8) for n, v in (("a", a), ("b", b), ("c", c), ("y", y))}
    run_compiled(kernel, {}, places, {"n": count})
    with np.errstate(all="ignore"):
        found = arithmetic.fma(a, b, c)
    same = (found.view(np.uint8) == y.view(np.uint8)).reshape(count, -1).all(axis=1)
    assert (same | (np.isnan(found) & np.isnan(y))).all()


def test_the_command_compares_and_says_what_differs(capsys, monkeypatch) -> None:
    arguments = ["un_relu", "--set", "n=3", "--set", "S=f32", "--compare"]
    assert command.main(arguments) == 0
    assert capsys.readouterr().out.endswith("compiled: the same bits\n")

    def other(kernel, storages, places, *rest):
        run_compiled(kernel, storages, places, *rest)
        places["y"].view(np.float32)[1] = 5

    monkeypatch.setattr(command, "run_compiled", other)
    assert command.main(arguments) == 1
    wrong = capsys.readouterr().out.splitlines()[-1]
    assert re.fullmatch(
        r"y\[1\]: .* in plain Python, .*5.0.* compiled; 1 of 3 elements differ", wrong
    )


def _other_sum(kernel, storages, places, *rest):
    """Run the compiled kernel, but change one element of the plain variant's result."""
    run_compiled(kernel, storages, places, *rest)
    if kernel.variant == "plain":
        places["y"].view(np.float32)[2] += 1


def test_the_command_shows_two_variants_and_where_they_differ(capsys, monkeypatch) -> None:
    shape = {"n": 1, "c": 2, "h": 3, "wd": 3, "k": 1, "kh": 3, "kw": 3, "oh": 3, "ow": 3}
    shape |= {"sh": 1, "sw": 1, "ph": 1, "pw": 1, "dh": 1, "dw": 1, "g": 1, "act": 0}
    settings = [part for n, v in shape.items() for part in ("--set", f"{n}={v}")]
    arguments = ["conv.narrow", "--against", "plain", "--set", "S=f32", "--set", "W=f32", *settings]
    assert command.main(arguments) == 0
    assert capsys.readouterr().out.endswith("conv.plain: the same bits\n")
    monkeypatch.setattr(command, "run_compiled", _other_sum)
    assert command.main(arguments) == 1
    *_, where, one, other, count = capsys.readouterr().out.splitlines()
    assert where == "y[2] differs:"
    assert re.fullmatch(r"conv.narrow  .*, edgetrain/kernels/conv/fast_store.py:\d+", one)
    assert re.fullmatch(r"conv.plain   .*, edgetrain/kernels/conv/plain.py:\d+", other)
    assert count == "1 of 9 elements differ, by at most 1"


@pytest.mark.parametrize("name", ["attention", "conv", "conv_csr_dw", "gather_bwd", "winograd"])
def test_a_call_is_found_that_two_variants_accept(name: str) -> None:
    *fast, plain = registry.variants(name)
    for other in fast:
        call = calls.made(plain, 0, {}, other)
        other.spec.extents(call.values, call.storages, 1, calls.lanes_of(other))


def test_a_saved_call_is_the_same(tmp_path: Path, capsys) -> None:
    kernel = labelled("gemm.tiles16")
    call = calls.made(kernel, 1, {"A": "f32", "B": "f32", "C": "f32"})
    same = calls.Call(
        kernel, call.storages, call.values, call.places | {"c": call.places["c"]}, 16, 3
    )
    same.save(tmp_path / "call.npz")
    read = calls.load(str(tmp_path / "call.npz"), kernel)
    assert (read.values, read.storages, read.threads) == (call.values, call.storages, 3)
    assert {n: p.tobytes() for n, p in read.places.items()} == {
        n: p.tobytes() for n, p in call.places.items()
    }
    assert command.main(["gemm", "--against", "tiles8", "--call", str(tmp_path / "call.npz")]) == 0
    (tmp_path / "none.npz").write_bytes(b"no call")
    for name, file, message in (
        ("conv", "call.npz", "a call of kernel gemm, expected conv"),
        ("gemm", "none.npz", "not a saved call"),
        ("gemm", "missing.npz", "not a saved call"),
    ):
        assert command.main([name, "--call", str(tmp_path / file)]) > 0
        assert message in capsys.readouterr().err


FAILING = """
import numpy as np
from tests.kernels.harness import call

def test_wrong():
    x, storages = np.ones(70, np.float32), {v: "f32" for v in "WGV"}
    call("sgd", storages, variant="wide", w=x, g=x, v=x, ctl=np.zeros(64, np.int64), n=70, key=0,
         mu=0.9, wd=0.0, dampening=0.0, nesterov=0)
    raise AssertionError
"""


def test_a_failing_test_prints_the_command_for_its_last_call(tmp_path: Path) -> None:
    hooks = "from tests.kernels.conftest import _no_call_yet, pytest_runtest_makereport\n"
    (tmp_path / "conftest.py").write_text(hooks)
    (tmp_path / "test_wrong.py").write_text(FAILING)
    line = "python -m pytest -p no:cacheprovider -c /dev/null --rootdir . test_wrong.py"
    shown = _executed(line, tmp_path)
    found = re.search(r"^python -m edgetrain.kernels.run sgd.wide --against plain .*$", shown, re.M)
    assert found is not None, shown
    assert _executed(found[0], ROOT).endswith("sgd.plain: the same bits\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["un_relu", "--against", "fast"], "kernel un_relu.plain has other variants: none"),
        (["gemm", "--against", "plain"], "other variants: tiles16, tiles8, tiles4"),
        (["gemm", "--against", "tiles8", "--compare"], "cannot be combined with --compare"),
        (["gemm", "--call", "x", "--set", "n=3"], "leave out --set"),
        (["run_tape"], "takes addresses of the runtime"),
        (["csr_grow"], "needs tables filled by other kernels"),
        (["un_relu", "--set", "m=3"], "no integer or storage 'm'; available: S, n"),
        (["un_relu", "--set", "S=f8"], "storage S=f8: expected one of"),
        (["un_relu", "--set", "n"], "--set n: expected NAME=VALUE"),
        (["un_relu.fast"], "no variant 'fast'; available: un_relu.plain"),
        (["nonsense"], "kernel 'nonsense': not available"),
        (["un_relu", "--set", "n=0"], "kernel un_relu.plain: found no integers"),
    ],
)
def test_what_cannot_be_run_is_said_in_a_line(arguments, message, capsys) -> None:
    assert command.main(arguments) > 0
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("threads", ["0", "-3", "65", "1000000", "two"])
def test_threads_that_no_program_has_are_refused(threads: str, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["un_relu", "--set", "n=4", "--threads", threads])
    assert ended.value.code == 2
    assert f"{threads}: expected a number from 1 to 64" in capsys.readouterr().err


def _executed(command_line: str, folder: Path, answers: str = "") -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    line = re.sub(r"^python ", f"{sys.executable} ", command_line)
    done = subprocess.run(
        line, shell=True, cwd=folder, env=environment, input=answers, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300,
    )  # fmt: skip
    return done.stdout


def test_the_debugger_stops_in_the_kernel(tmp_path: Path) -> None:
    line = "python -m edgetrain.kernels.run un_neg --break --set n=2 --set S=f32"
    shown = _executed(line, tmp_path, "p args.n\nw\nc\nc\nc\n")
    assert "unary.py" in shown and "np.int64(2)" in shown and "y[2] = " in shown


def test_the_session_of_contributing_finds_its_wrong_number(tmp_path: Path) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text().partition("## Finding a wrong number")[2]
    source, session = re.findall(r"```(?:python|console)\n(.*?)```", text, re.S)[:2]
    (tmp_path / "smooth.py").write_text(source)
    for part in session.removeprefix("$ ").split("\n$ "):
        line, _, expected = part.partition("\n")
        assert _executed(line, tmp_path).strip() == expected.strip()


def test_a_call_is_the_same_for_a_seed() -> None:
    kernel = labelled("gemm.plain")
    one, same, other = (calls.made(kernel, seed) for seed in (3, 3, 4))
    assert one.values == same.values and one.values != other.values
    assert all(one.places[name].tobytes() == same.places[name].tobytes() for name in one.places)
    with pytest.raises(UsageError, match="no integer"):
        calls.made(kernel, 0, {"nonsense": 1})


def test_calls_follow_the_option(request: pytest.FixtureRequest) -> None:
    """Only the interpreter notices a read of memory that was never written."""
    kernel, x = planted("st(args.y, 0, ld(args.ws, 3))"), np.ones(8, np.float32)
    if not request.config.getoption("--interpret"):
        assert harness.call(kernel, x=x, y=x.shape, n=8)["y"].size == 8
        return
    with pytest.raises(KernelFault, match=r"ws\[3\], read at planted.py:2"):
        harness.call(kernel, x=x, y=x.shape, n=8)


def test_the_option_interprets() -> None:
    line = "python -m pytest -p no:cacheprovider --interpret tests/kernels/test_run.py"
    assert "1 passed" in _executed(f"{line} -k calls_follow", ROOT)


@pytest.mark.parametrize(
    ("label", "fixed"),
    [
        ("mse_w_loss.plain", {"n": 10, "rows": 4, "S": "f32"}),
        ("bce_w_bwd.plain", {"n": 3, "rows": 4, "S": "f32"}),
        ("wce_loss.plain", {"outer": 10, "rows": 4, "S": "f32"}),
        ("wce_bwd.plain", {"outer": 3, "rows": 4, "S": "f32"}),
    ],
)
def test_the_last_part_of_a_sample_has_its_weight(label: str, fixed: dict) -> None:
    """Calls that a tape could contain stay inside the operands even if no model makes them."""
    found = (calls.made(labelled(label), seed, fixed) for seed in range(50))
    call = next(call for call in found if "sw" in call.places)
    call.places["ctl"].view(np.int64)[3] = 10  # COUNT: all samples are valid
    interpret(call.kernel, call.storages, call.copied(), call.values)


def test_best_classes_without_scores_are_not_kept() -> None:
    found = (calls.made(labelled("ce_slice.plain"), seed, {"S": "f32"}) for seed in range(200))
    call = next(c for c in found if "best" in c.places and "scores" not in c.places)
    interpret(call.kernel, call.storages, call.copied(), call.values)


def test_operands_without_elements_do_not_differ() -> None:
    kernel = labelled("un_relu.plain")
    empty = {"y": np.empty(0, np.uint8)}
    assert difference(kernel, {"S": "f32"}, empty, empty) == ""
