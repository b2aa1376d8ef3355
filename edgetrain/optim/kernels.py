"""Kernels of all optimizers; imported to compile one, or to collect declarations."""

from ..kernels.optimizers.declare import declare
from ..kernels.optimizers.rule import Rule
from . import OPTIMIZERS

for _name in OPTIMIZERS:
    _kind = OPTIMIZERS[_name]
    if _kind.kernel == _name:
        _made_of = _kind.states, _kind.ranged(), _kind.arithmetic, _kind.sums, _kind.wide
        declare(Rule(_name, *_made_of, f".optim.{_kind.__module__.rpartition('.')[2]}"))
