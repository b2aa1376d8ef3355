"""Decides which batch-norms use batch statistics in training, and updates running statistics.

A held batch-norm uses its running statistics: it is an affine op, saves nothing for backward,
treats samples independently and leaves its statistics unchanged bit for bit. All others compute
statistics of the microbatch and update staged copies of the running ones; the update commits these
with the weights (compiler/tapes/update.py), so a skipped step leaves no trace.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ...errors import ModelError
from ...ir import Graph, Node, Value
from ...units.statistics import is_tracked
from ..model.trained import Choice


def staged_name(statistic: str) -> str:
    """Name of the staged copy of a running statistic."""
    return f"{statistic}.staged"


def hold_statistics(forward: Graph, choice: Choice, freeze_bn: bool | None = None) -> Graph:
    """Make held batch-norms use their running statistics.

    A batch-norm is held if it has parameters and none is trained. One without parameters follows
    the layers around it: it is held if its input depends on parameters and none of these is
    trained, or, at the input, if the layers after it are untrained. It isn't held in a module (by
    the dots of its name) whose parameters are all trained, such as a new head. One that the
    exported module kept in evaluation mode is held. A pattern that matches the running mean takes
    precedence.

    Args:
      freeze_bn: True holds all, False none.
    Raises:
      ModelError: a batch-norm that isn't held sees one element per channel.
    """
    applies = {n.inputs[1]: n for n in forward.nodes if n.op == "bn_apply"}
    running = {n.inputs[0]: n for n in forward.nodes if n.op == "bn_running"}
    if not running:
        return forward
    around = None if freeze_bn is not None else _Around(forward, choice)
    held: dict[str, Node] = {}  # batch statistics -> the node that would update the running ones
    for stat, node in running.items():
        asked = freeze_bn if around is None else around.holds(applies.get(stat), node)
        if asked and is_tracked(node.inputs[1]):
            held[stat] = node
        elif node.attrs["count"] < 2:
            raise ModelError(
                f"node {node.origin!r} (BatchNormalization): one value per channel; expected a "
                "microbatch of at least 2 samples, or a frozen batch-norm (--freeze-bn)."
            )
    return forward.with_nodes(_held(forward.nodes, held)) if held else forward


def _held(nodes: tuple[Node, ...], held: Mapping[str, Node]) -> Iterator[Node]:
    for node in nodes:
        if node.op == "bn_stats" and node.outputs[0] in held:
            inputs = held[node.outputs[0]].inputs[1:]
            yield replace(node, op="bn_eval_stats", inputs=inputs)
        elif node.op == "bn_apply" and node.inputs[1] in held:
            yield replace(node, attrs={**node.attrs, "frozen": True})
        elif node.op != "bn_running" or node.inputs[0] not in held:
            yield node


@dataclass(frozen=True, slots=True)
class _Depends:
    """Whether a value depends on any parameters, and on trained ones."""

    some: bool = False
    trained: bool = False

    def __or__(self, other: "_Depends") -> "_Depends":
        return _Depends(self.some or other.some, self.trained or other.trained)


_NOTHING = _Depends()


class _Around:
    """The parameters before, after and around each batch-norm of a forward graph."""

    def __init__(self, graph: Graph, choice: Choice) -> None:
        self._graph, self._choice = graph, choice
        self._before: dict[str, _Depends] = {}
        self._beside: dict[str, tuple[bool, bool]] = {}  # module -> (some, all) trained
        for name, value in graph.values.items():
            if value.role == "parameter" and not value.view_of:
                self._before[name] = _Depends(True, choice(name))
                self._join(name)
        self._fed = set(graph.inputs)  # values that depend on a sample
        for node in graph.nodes:
            depends = self._union(node.reads)
            self._before.update(dict.fromkeys(node.writes, depends))
            if any(graph.root(name) in self._fed for name in node.reads):
                self._fed.update(graph.root(name) for name in node.writes)
        self._behind = self._first_behind()

    def _join(self, parameter: str) -> None:
        trained = self._before[parameter].trained
        for module in _modules(parameter):
            some, every = self._beside.get(module, (False, True))
            self._beside[module] = some or trained, every and trained

    def _of(self, name: str) -> _Depends:
        return self._before.get(name) or self._before.get(self._graph.root(name), _NOTHING)

    def _union(self, names) -> _Depends:
        out = _NOTHING
        for name in names:
            out |= self._of(name)
        return out

    def _first_behind(self) -> dict[str, _Depends]:
        """{value: the first parameters that meet it or values computed from it}."""
        behind: dict[str, _Depends] = {}
        for node in reversed(self._graph.nodes):
            depends = self._union(n for n in node.reads if self._graph.root(n) not in self._fed)
            if not depends.some:
                for name in node.writes:
                    depends |= behind.get(name, _NOTHING)
            for name in node.reads:
                behind[name] = behind.get(name, _NOTHING) | depends
        return behind

    def holds(self, apply: Node | None, running: Node) -> bool:
        """Whether a batch-norm uses its running statistics."""
        mean = running.inputs[1]
        if self._choice.froze(mean) or self._choice.held(mean):
            return True
        if apply is None:
            return False
        affine = self._union(name for name in apply.inputs[2:] if name)
        if affine.some:
            return not affine.trained
        if self._choice.asked(mean):
            return False
        before = self._of(apply.inputs[0])
        if not before.some:
            behind = self._behind.get(apply.outputs[0], _NOTHING)
            return behind.some and not behind.trained
        return not before.trained and not self._in_trained_module(mean)

    def _in_trained_module(self, name: str) -> bool:
        """Whether all parameters of the innermost module around `name` are trained."""
        beside = next((self._beside[m] for m in _modules(name) if m in self._beside), None)
        return beside is not None and beside[1]


def _modules(name: str) -> Iterator[str]:
    """The modules of a torch name by its dots, innermost first, without the whole model."""
    while "." in name:
        name = name.rpartition(".")[0]
        yield name


def stage_statistics(graph: Graph) -> Graph:
    """Add staged copies of running statistics, which the update commits.

    A batch-norm that is applied twice continues from the copy of its first application.

    Raises:
      ModelError: the name of a copy is already used.
    """
    values, nodes = dict(graph.values), []
    moved: dict[str, str] = {}  # statistic -> its copy
    for node in graph.nodes:
        if node.op == "bn_running":
            statistics = node.inputs[1:]
            read = [moved.get(name, name) for name in statistics]
            for name in statistics:
                moved.setdefault(name, _copy_of(name, values))
            written = tuple(moved[name] for name in statistics)
            node = replace(node, inputs=(node.inputs[0], *read), outputs=written)
        nodes.append(node)
    return graph.with_nodes(nodes, values)


def _copy_of(statistic: str, values: dict[str, Value]) -> str:
    name = staged_name(statistic)
    if name not in values:
        values[name] = Value(name, values[statistic].shape, "f32", "staged")
    elif values[name].role != "staged":
        raise ModelError(
            f"running statistic {statistic!r}: the model already uses {name!r}, the name of "
            f"its staged copy. Rename that value in the model."
        )
    return name
