"""All kernel calls from ops, losses, optimizers and rewiring match the kernels' declarations."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from edgetrain.api import make_options
from edgetrain.compiler.compilation import Compilation
from edgetrain.compiler.pipeline import build_graphs
from edgetrain.compiler.tapes import lowering
from edgetrain.compiler.tapes.update import update_tape
from edgetrain.ir import Call, Graph, Node
from edgetrain.kernels import registry
from edgetrain.kernels.cache import jit
from edgetrain.ops.registry import op
from edgetrain.optim import OPTIMIZERS, make_optimizer
from edgetrain.sparse import REWIRINGS

from ..cases import CASES
from ..compiler.nets import conv_bn_relu_conv
from . import harness

FAMILIES: dict[str, list] = {}
for _case in CASES:
    FAMILIES.setdefault(_case.op, []).append(_case)


def faults(call: Call, values: Mapping) -> list[str]:
    """Return mismatches with the declaration: names, and types of arguments."""
    spec = registry.variants(call.kernel)[0].spec
    operands = {o.name: o for o in spec.operands if o.mode != "t"}
    needed = {name for name, o in operands.items() if not o.optional}
    args = spec.flat(call.args)
    found = [f"{call.kernel}.{name}: not declared" for name in args.keys() - operands.keys()]
    found += [f"{call.kernel}.{name}: not given" for name in needed - args.keys()]
    for name, arg in args.items():
        operand = operands.get(name)
        if operand is None:
            continue
        kinds = {"i": int, "f": int | float}.get(
            operand.mode, str if name in needed else str | None
        )
        if not isinstance(arg, kinds) or (operand.is_reference and arg and arg not in values):
            found.append(f"{call.kernel}.{name}: {arg!r} for {operand}")
    return found


def node_faults(node: Node, graph: Graph) -> Iterator[str]:
    """Yield `faults` of a node's calls, and operands missing in its lists of reads and writes."""
    reads, writes = ({graph.root(n) for n in names} for names in (node.reads, node.writes))
    for call in op(node.op).lower(node, graph):
        yield from faults(call, graph.values)
        for operand in registry.variants(call.kernel)[0].spec.operands:
            arg = call.args.get(operand.name)
            if operand.is_reference and isinstance(arg, str) and arg != "ctl":
                moves = graph.values[graph.root(arg)].role == "buffer"  # running statistics
                allowed = reads | writes if operand.mode == "r" or moves else writes
                if graph.root(arg) not in allowed:
                    yield f"{node.op}: {call.kernel}.{operand.name} is {arg}"


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("most", [3, pytest.param(None, marks=pytest.mark.slow)])
def test_calls_of_an_op_are_declared(family: str, most: int | None) -> None:
    for number, case in enumerate(FAMILIES[family][:most]):
        built = harness.build(case)
        batch = len(next(iter(built.inputs.values())))
        for precision in ("fp32", "fp16") if number == 0 else ("fp32",):
            options = make_options(loss="mse", minibatch=batch, precision=precision)
            graphs = build_graphs(Compilation(built.model, options), batch)
            for graph in (graphs.train, graphs.evaluate):
                wrong = [fault for node in graph.nodes for fault in node_faults(node, graph)]
                assert wrong == [], case.id


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("rewiring", REWIRINGS)
def test_calls_of_updates_and_rewirings_are_declared(
    optimizer: str, rewiring: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, bind = [], lowering.bind_call

    def recorded(call, graph, threads, target):
        calls.append((call, graph))
        return bind(call, graph, threads, target)

    monkeypatch.setattr("edgetrain.compiler.tapes.update.bind_call", recorded)
    chosen = make_optimizer(optimizer, **({"momentum": 0.9} if optimizer == "sgd" else {}))
    options = make_options(
        minibatch=8, optimizer=chosen, density=0.5, density_overrides={"*": 0.5}, rewiring=rewiring
    )
    graphs = build_graphs(Compilation(conv_bn_relu_conv(), options), 8)
    update_tape(graphs.train, options, jit.host(), graphs.layers, graphs.rewiring)
    assert {call.kernel for call, _ in calls} >= {"grad_sumsq", "grad_finish", "csr_share"}
    assert [fault for call, graph in calls for fault in faults(call, graph.values)] == []


def test_a_call_with_another_name_is_not_bound() -> None:
    graph = build_graphs(Compilation(conv_bn_relu_conv(), make_options(minibatch=8)), 8).train
    node = next(n for n in graph.nodes if n.op == "conv")
    (call, *_) = op(node.op).lower(node, graph)
    for args in ({**call.args, "extra": 1}, {k: v for k, v in call.args.items() if k != "x"}):
        with pytest.raises(AssertionError, match=call.kernel):
            lowering.bind_call(replace(call, args=args), graph, 2, jit.host())
