"""Kernels of the schedules that multiply the rate by a factor.

Imported only to compile one of them, or to collect declarations.
"""

from collections.abc import Callable
from types import FunctionType

from ...kernels.registry import kernel
from ...kernels.step_loop.rates import RATE, STEP, TOTAL, WARMUP
from . import SCHEDULES
from .base import Schedule
from .words import FUNCTIONS, At


def _inlined(factor: Callable) -> Callable:
    """The formula with the intrinsics of kernels."""
    from ...kernels.language.inlining import inline
    from ...kernels.language.mathf import sqrt
    from ...kernels.language.prim import to_real
    from ...kernels.step_loop.rates import cospi, power

    assert isinstance(factor, FunctionType)
    words = dict(zip(FUNCTIONS, (to_real, power, sqrt, cospi), strict=True))
    scope = {n: words.get(n, factor.__globals__.get(n)) for n in factor.__code__.co_names}
    known = {name: value for name, value in scope.items() if value is not None}
    return inline(FunctionType(factor.__code__, known, factor.__name__))


def _declare(kind: type[Schedule]) -> None:
    operands = ["ctl:m:i64[64]"]
    for name, (least, most) in kind.whole_options().items():
        operands.append(f"{name}={least}..{most}")
    module = f".optim.schedules.{kind.__module__.rpartition('.')[2]}"

    @kernel(kind.kernel, " ".join(operands), module=module)
    def factory():
        from ...kernels.language.prim import ld_f64, ld_i64, to_real
        from ...kernels.step_loop.rates import set_rate

        factor = _inlined(kind.factor)

        def run(thread, nthreads, args):
            if thread == 0:
                step, warmup = ld_i64(args.ctl, STEP), ld_i64(args.ctl, WARMUP)
                total = ld_i64(args.ctl, TOTAL)
                share = to_real(max(0, step - warmup)) / to_real(max(1, total - warmup))
                at = At(step, warmup, total, min(1.0, share))
                rates = tuple(ld_f64(args.ctl, RATE + i) for i in (0, 1, 2))
                set_rate(args.ctl, factor(at, args, rates))

        return run


for _kind in SCHEDULES.values():
    if _kind.kernel:
        _declare(_kind)
