"""Estimates the memory of a framework that runs node by node, for comparison with a plan.

Every value of the forward pass is float32 and is kept until its last use in backward; the minibatch
is one batch; gradients are made as backward proceeds. The estimate leaves out duplicates that
frameworks keep (masks, both sides of an activation), workspaces, an allocator's rounding and
libraries, so a real framework takes more.
"""

from ...formats.csr import POOL
from ...ir import Graph, Value
from ...program.account import KIND_OF_ROLE
from ..pipeline import unfused_training_graph
from .candidates import Plan

_FLOAT_NBYTES = 4


def eager_account(plan: Plan) -> dict[str, int]:
    """Bytes by kind at the peak, for the model and options of a plan."""
    compilation, microbatch = plan.candidate.compilation, plan.candidate.microbatch
    graph = unfused_training_graph(compilation, microbatch)
    repeats = compilation.options.minibatch // microbatch
    roots = {name: v for name, v in graph.values.items() if not v.view_of}
    fixed = {"params": 0, "optimizer": _state_nbytes(plan)}
    for value in roots.values():
        if value.role in ("parameter", "buffer", "constant"):
            fixed["params"] += _nbytes(value)
    born, last, saved = _lives(graph)
    change: list[dict[str, int]] = [{} for _ in range(len(graph.nodes) + 2)]

    def note(offset: int, kind: str, nbytes: int) -> None:
        change[offset][kind] = change[offset].get(kind, 0) + nbytes

    for name, start in born.items():
        value = roots[name]
        if value.role in ("parameter", "buffer", "constant", "staged", "control"):
            continue
        if value.role == "accumulator":
            note(start, "grads", _nbytes(value))
            continue
        kind = KIND_OF_ROLE.get(value.role) or ("saved" if name in saved else "transient")
        nbytes = repeats * _nbytes(value)
        note(start, kind, nbytes)
        note(last[name] + 1, kind, -nbytes)
    return fixed | _fullest(change)


def _fullest(change: list[dict[str, int]]) -> dict[str, int]:
    """Bytes by kind at the peak, from the changes of each step."""
    now: dict[str, int] = {}
    best: dict[str, int] = {}
    for row in change:
        for kind, nbytes in row.items():
            now[kind] = now.get(kind, 0) + nbytes
        if sum(now.values()) > sum(best.values()):
            best = dict(now)
    return best


def _lives(graph: Graph) -> tuple[dict[str, int], dict[str, int], set[str]]:
    """First write and last use, by position, of each root that is an input or that a node writes;
    and the roots that forward writes and backward reads.
    """
    born = {graph.root(name): 0 for name in graph.inputs}
    last = dict(born)
    early, saved = set(born), set()
    for index, node in enumerate(graph.nodes):
        for name in (*node.reads, *node.writes):
            root = graph.root(name)
            if name in node.writes:
                born.setdefault(root, index)
                if node.phase == "forward":
                    early.add(root)
            elif node.phase == "backward" and root in early:
                saved.add(root)
            last[root] = index
    return born, last, saved


def _nbytes(value: Value) -> int:
    if value.dtype.startswith("f"):
        return _FLOAT_NBYTES * value.size
    return value.nbytes


def _state_nbytes(plan: Plan) -> int:
    """The optimizer's state in float32, sparse weights dense."""
    layers = plan.candidate.graphs.layers
    share = sum(layer.share for layer in layers)
    dense = sum(layer.size for layer in layers) / share if share else 1.0
    total = 0.0
    for value in plan.candidate.update.persistent:
        if value.role == "state":
            total += _nbytes(value) * (dense if value.name.startswith(POOL) else 1.0)
    return round(total)
