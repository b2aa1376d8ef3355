"""A canary: what emission/lowering.py takes from numba's inside is as they expect it."""

import inspect
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import numba
import pytest
from numba.core import caching, codegen, compiler, cpu, registry, serialize

from edgetrain.kernels.emission import lowering
from edgetrain.kernels.language.inlining import inline
from edgetrain.kernels.language.prim import st_i64

MOVE = (
    f"numba {numba.__version__} is not what edgetrain/kernels was written for. Look at _text_only "
    "and _linked before the upper bound in pyproject.toml is raised."
)
HOOKS: dict[str, tuple[Callable, str]] = {
    "finalize": (codegen.CPUCodeLibrary.finalize, "self"),
    "optimise": (codegen.CPUCodeLibrary._optimize_functions, "self, ll_module"),
    "executable": (cpu.CPUContext.get_executable, "self, library, fndesc, env"),
    "compile": (
        compiler.compile_extra,
        "typingctx, targetctx, func, args, return_type, flags, locals, library, pipeline_class",
    ),
    "load": (caching.FunctionCache.load_overload, "self, sig, target_context"),
    "save": (caching.FunctionCache.save_overload, "self, sig, data"),
    "nothing kept": (caching.NullCache.load_overload, "self, sig, target_context"),
    "reduce": (compiler.CompileResult._reduce, "self"),
    "rebuild": (compiler.CompileResult._rebuild, ""),
    "pickle": (serialize.dumps, "obj"),
}


@pytest.mark.parametrize("hook", HOOKS)
def test_numba_has_the_hooks_that_are_used(hook: str) -> None:
    function, expected = HOOKS[hook]
    found = ", ".join(inspect.signature(function).parameters)
    if hook == "rebuild":  # a class method: its class, then what _reduce gave
        assert len(found.split(", ")) >= 9 and found.startswith("target_context, libdata"), MOVE
    else:
        assert found == expected, f"{hook}({found}), expected ({expected}): {MOVE}"


@inline
def _helper(a):
    return 3 * a + 1


def _kernel(thread, nthreads, y, n):
    st_i64(y, 0, _helper(_helper(n)))


def test_text_of_a_kernel_is_made_without_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_):
        raise AssertionError(f"machine code is made of a helper: {MOVE}")

    lowering._numba_contexts()  # numba compiles its own runtime first
    engine = type(registry.cpu_target.target_context.codegen()._engine)
    monkeypatch.setattr(engine, "add_module", refused)
    hooks = [codegen.CPUCodeLibrary.finalize, cpu.CPUContext.get_executable]
    text = lowering.llvm_text("et_canary", _kernel, "ri")
    assert hooks == [codegen.CPUCodeLibrary.finalize, cpu.CPUContext.get_executable]
    called = re.search(r'call i32 @"([^"]+)"', text.partition("@et_canary")[2])
    assert called is not None, MOVE
    defined = re.findall(r'^define [^@]*@"?([^"(]+)', text, re.M)
    assert called[1] in defined and any("_helper" in name for name in defined), MOVE


def test_numba_is_within_the_bounds_of_the_package() -> None:
    path = Path(__file__).resolve().parents[2] / "pyproject.toml"
    wanted = tomllib.loads(path.read_text())["project"]["dependencies"]
    (text,) = (item for item in wanted if item.startswith("numba"))
    bounds = re.fullmatch(r"numba>=(\d+)\.(\d+),<(\d+)\.(\d+)", text)
    assert bounds is not None, f"{text!r} has no upper bound"
    low, high = (int(bounds[1]), int(bounds[2])), (int(bounds[3]), int(bounds[4]))
    assert low <= tuple(map(int, numba.__version__.split(".")[:2])) < high, MOVE
