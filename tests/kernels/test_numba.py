"""A canary: the numba internals that emission/ uses behave as expected."""

import inspect
import operator
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import numba
import pytest
from numba.core import base, callconv, types
from numba.core.registry import cpu_target
from numba.core.typing.context import BaseContext

from edgetrain.kernels.emission import lowering
from edgetrain.kernels.language.inlining import inline
from edgetrain.kernels.language.prim import st_i64

MOVE = (
    f"numba {numba.__version__} is not what edgetrain/kernels was written for. Look at "
    "emission/expressions.py and functions.py before the upper bound in pyproject.toml is raised."
)
HOOKS: dict[str, tuple[Callable, str]] = {
    "types": (BaseContext.resolve_function_type, "self, func, args, kws"),
    "common type": (BaseContext.unify_types, "self, typelist"),
    "instructions": (base.BaseContext.get_function, "self, fn, sig, _firstcall"),
    "casts": (base.BaseContext.cast, "self, builder, val, fromty, toty"),
    "LLVM's types": (base.BaseContext.get_value_type, "self, ty"),
    "tuples": (base.BaseContext.make_tuple, "self, builder, typ, values"),
    "a context of our own": (base.BaseContext.subtarget, "self, kws"),
    "nothing linked": (base.BaseContext.push_code_library, "self, lib"),
    "errors": (callconv.create_error_model, "model_name, context"),
}


@pytest.mark.parametrize("hook", HOOKS)
def test_numba_has_the_hooks_that_are_used(hook: str) -> None:
    function, expected = HOOKS[hook]
    found = ", ".join(inspect.signature(function).parameters)
    assert found == expected, f"{hook}({found}), expected ({expected}): {MOVE}"


def test_numba_types_numbers_as_kernels_expect() -> None:
    """How numba types mixed 32-bit and 64-bit operands, and `int` and `float`."""

    def typed(function, *kinds):
        return cpu_target.typing_context.resolve_function_type(function, kinds, {}).return_type

    cpu_target.typing_context.refresh()
    found = [
        typed(operator.add, types.float32, types.int64),
        typed(operator.mul, types.float32, types.float32),
        typed(operator.mul, types.uint32, types.int64),
        typed(operator.truediv, types.int64, types.int64),
        typed(float, types.float32),
        typed(int, types.uint32),
    ]
    f32, f64 = types.float32, types.float64
    assert found == [f64, f32, types.int64, f64, f32, types.uint32], MOVE


@inline
def _helper(a):
    return 3 * a + 1


def _kernel(thread, nthreads, y, n):
    st_i64(y, 0, _helper(_helper(n)))


def test_text_of_a_kernel_has_its_functions_once() -> None:
    text = lowering.llvm_text("et_canary", _kernel, "ri")
    defined = re.findall(r'^define [^@]*@"?([^"(]+)', text, re.M)
    assert sorted(name.partition(".")[0] for name in defined) == ["_helper", "et_canary", "kernel"]


def test_numba_is_within_the_bounds_of_the_package() -> None:
    path = Path(__file__).resolve().parents[2] / "pyproject.toml"
    wanted = tomllib.loads(path.read_text())["project"]["dependencies"]
    (text,) = (item for item in wanted if item.startswith("numba"))
    bounds = re.fullmatch(r"numba>=(\d+)\.(\d+),<(\d+)\.(\d+)", text)
    assert bounds is not None, f"{text!r} has no upper bound"
    low, high = (int(bounds[1]), int(bounds[2])), (int(bounds[3]), int(bounds[4]))
    assert low <= tuple(map(int, numba.__version__.split(".")[:2])) < high, MOVE
