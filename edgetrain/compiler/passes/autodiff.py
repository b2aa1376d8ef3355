"""Forward graph + loss -> training graph: forward, loss and backward in execution order.

Gradients of a value with several readers are added in the reverse order of the readers, each
in place into the sum so far, so all plans add in the same order. A gradient that is passed on
unchanged (Add, a view) shares its bytes; it is updated in place only if no other value still needs
it.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ...errors import ModelError, UsageError
from ...formats import FP32
from ...ir import Builder, Graph, Value
from ...losses import Loss
from ...losses.terms import Term, joined
from ...ops.loss import LOSS, backward_of
from ...ops.registry import op
from ...program import TARGET, WEIGHT, WEIGHTS
from ..options import Options
from .head import Head, add_sliced_gradient, add_sliced_loss


def accumulator_name(parameter: str) -> str:
    """Name of the value with a parameter's gradient over a minibatch."""
    return f"{parameter}.grad"


def array_name(operand: str, label: str = "") -> str:
    """Name of the value that holds an array of the loss; `label`: which of several losses."""
    return f"loss.{label}.{operand}" if label else f"loss.{operand}"


def loss_values(terms: Sequence[Term], shapes: Sequence[tuple[int, ...]]) -> dict[str, np.ndarray]:
    """The arrays of all losses for outputs of these shapes, by value name."""
    result = {
        array_name(name, term.label): array
        for term, shape in zip(terms, shapes, strict=True)
        for name, array in term.loss.arrays(shape).items()
    }
    if joined(terms):
        result[WEIGHTS] = np.array([term.loss.weight for term in terms], np.float32)
    return result


def training_graph(
    forward: Graph,
    options: Options,
    output: str,
    trainable: Callable[[str], bool] = lambda name: True,
    samples: int = 1,
    head: Head | None = None,
    wanted: Sequence[str] = (),
) -> Graph:
    """Append loss and backward.

    Args:
      output: the forward value the loss is computed from, if the graph has no losses of its own.
      head: replaces the output if `forward` doesn't contain it.
      trainable: which parameters have a gradient.
      samples: as in `add_loss`.
      wanted: inputs that also get a gradient.
    Raises:
      UsageError: nothing is trained, or the output doesn't depend on trained parameters.
    """
    ends = [output] if head is None else [head.x, head.w, *filter(None, [head.bias])]
    loss_inputs = [node.inputs[0] for node in forward.nodes if node.op == LOSS.name]
    ends = loss_inputs or ends
    grads = Gradients(forward, trainable, ends, wanted)
    if not any(map(grads.needs, ends)):
        raise UsageError(
            f"output {output!r} does not depend on any trained parameter. Choose another output, "
            "or train more parameters."
        )
    staged, loss = [], options.loss  # type: list[str], Loss
    if head is not None:
        staged, arrays = add_target(grads.builder, loss, head.logits, samples)
        sliced_loss = add_sliced_loss(grads.builder, head, head.x, arrays, options)
        add_sliced_gradient(grads, head, sliced_loss, arrays, options)
    elif not loss_inputs:
        staged = add_loss(grads.builder, loss, output, samples)
        grads.start(output, staged[-1], loss)
    for node in reversed(forward.nodes):
        op(node.op).vjp(grads, node)
        grads.release(node.outputs)
    graph = grads.builder.graph([*forward.inputs, *staged], forward.outputs)
    return graph.with_nodes(graph.nodes)


def add_loss(builder: Builder, loss: Loss, output: str, samples: int = 1) -> list[str]:
    """Append the target and the loss node.

    Args:
      samples: samples of the microbatch, if the output is one number for all of them.
    Returns:
      Names of the inputs in addition to the model's: sample weights if the loss has any, the
      target.
    """
    staged, arrays = add_target(builder, loss, builder.values[output], samples)
    attrs = loss_attrs(builder.values[output], loss, arrays)
    partials = builder.value("loss.partials", (256 if arrays else 192,), "f64", "statistic")
    inputs = [output, TARGET, *arrays.values()]
    builder.node("loss", inputs, [partials], attrs, name="loss", phase="loss")
    return staged


def with_losses(graph: Graph, terms: Sequence[Term], outputs: Sequence[str], samples: int) -> Graph:
    """The forward graph with several losses, or one with a weight, followed by their sum.

    Args:
      outputs: the value of each loss.
      samples: as in `add_loss`.
    Raises:
      UsageError: two losses of one output need different targets.
    """
    builder = Builder(graph.values, graph.nodes)
    builder.values["ctl"] = Value("ctl", (64,), "i64", "control")
    weights = Value(WEIGHTS, (len(terms),), "f32", "constant")
    builder.values[WEIGHTS] = weights
    staged, left = {}, []  # type: dict[str, None], list[str]
    for term, output in zip(terms, outputs, strict=True):
        names, arrays = add_target(builder, term.loss, builder.values[output], samples, term)
        staged |= dict.fromkeys(names)
        attrs = loss_attrs(builder.values[output], term.loss, arrays)
        attrs |= {"term": term.number, "terms": len(terms)}
        name = f"loss.{term.label}"
        partials = builder.value(f"{name}.partials", (256 if arrays else 192,), "f64", "statistic")
        inputs = [output, term.target, *arrays.values(), WEIGHTS, *left[-1:]]
        left.append(builder.value(f"{name}.ctl", (64,), "i64", "statistic"))
        builder.node("loss", inputs, [partials, left[-1]], attrs, name=name, phase="loss")
    total = builder.value("loss.sum", (1,), "f64", "statistic")
    builder.node("losses_total", [WEIGHTS, *left], [total], {}, name="loss.sum", phase="loss")
    staged.pop(TARGET)
    return builder.graph([*graph.inputs, *staged, TARGET], graph.outputs)


def add_target(
    builder: Builder, loss: Loss, output: Value, samples: int, term: Term | None = None
) -> tuple[list[str], dict[str, str]]:
    """Append the target and arrays of the loss.

    Returns:
      Input names as for `add_loss`, and the arrays' values by operand.
    """
    shape = (samples,) if loss.takes_mean(output.shape) else loss.target_shape(output.shape)
    name = TARGET if term is None else term.target
    target = builder.values.setdefault(name, Value(name, shape, loss.target_dtype, "target"))
    if (target.shape, target.dtype) != (shape, loss.target_dtype):
        assert term is not None
        raise UsageError(
            f"losses: output {term.output!r}: {loss.name} takes targets of shape {list(shape)} and "
            f"type {loss.target_dtype}; another of its losses takes {list(target.shape)}, "
            f"{target.dtype}. Choose losses with the same targets."
        )
    arrays = loss_arrays(builder, loss, output, "" if term is None else term.label)
    return ([WEIGHT, name] if loss.sample_weights else [name]), arrays


def loss_attrs(output: Value, loss: Loss, arrays: Mapping[str, str]) -> dict:
    """Attributes of the loss's nodes."""
    attrs = loss.call(output.shape) | ({"apart": 1} if loss.joins_samples else {})
    return attrs | {"arrays": tuple(arrays)} if arrays else attrs


def loss_arrays(builder: Builder, loss: Loss, output: Value, label: str = "") -> dict[str, str]:
    """The values of the loss's arrays by operand."""
    arrays = {}
    for operand, array in loss.arrays(output.shape).items():
        name = arrays[operand] = array_name(operand, label)
        builder.values.setdefault(name, Value(name, array.shape, "f32", "constant"))
    if loss.sample_weights:
        arrays["sw"] = WEIGHT
        builder.values.setdefault(WEIGHT, Value(WEIGHT, output.shape[:1], "f32", "target"))
    return arrays


class Gradients:
    """The interface of an op's `vjp`: gradients so far, and ways to add to them."""

    def __init__(
        self,
        forward: Graph,
        trainable: Callable[[str], bool],
        ends: Sequence[str] = (),
        wanted: Sequence[str] = (),
    ) -> None:
        """`ends`: values that the loss reads; `wanted`: inputs that get a gradient."""
        self.builder = Builder(forward.values)
        self.builder.values["ctl"] = Value("ctl", (64,), "i64", "control")
        for node in forward.nodes:
            names = {"name": node.name, "phase": node.phase, "origin": node.origin}
            self.builder.node(node.op, node.inputs, node.outputs, node.attrs, **names)
        self._forward = forward
        self._accumulators: dict[str, str] = {}
        chosen = {*wanted} & {*forward.inputs}

        def is_leaf(name: str) -> bool:
            role = forward.values[name].role
            return name in chosen or (role == "parameter" and trainable(name))

        self._needs = self._reach(forward, is_leaf, ends)
        self._current: dict[str, str] = {}  # forward value -> its gradient so far
        self._waiting: dict[str, set[str]] = {}  # root of a gradient -> values that still need it

    def _reach(
        self, forward: Graph, is_leaf: Callable[[str], bool], ends: Sequence[str]
    ) -> set[str]:
        """Names of the values that depend on leaves; each leaf gets an accumulator."""
        needs = set()
        read = {forward.root(name) for node in forward.nodes for name in node.reads}
        read.update(map(forward.root, ends))
        for name, value in forward.values.items():
            if not value.view_of and name in read and is_leaf(name):
                needs.add(name)
                self._accumulators[name] = self.builder.value(
                    accumulator_name(name), value.shape, value.dtype, "accumulator"
                )
                if self._accumulators[name] != accumulator_name(name):
                    raise ModelError(
                        f"parameter {name!r}: the model already uses {accumulator_name(name)!r}, "
                        "the name of its gradient. Rename that value in the model."
                    )
        if not needs:
            raise UsageError("no parameter is trained. Widen --train, or narrow --freeze.")
        for node in forward.nodes:
            if any(name in needs for name in node.reads):
                needs.update(
                    name
                    for name in node.writes
                    if forward.values[name].dtype == FP32.name
                    and forward.values[name].role
                    in ("activation", "statistic", "parameter", "input")
                )
        return needs

    # Queries for gradient rules.

    def needs(self, name: str) -> bool:
        """Whether the value depends on trained parameters."""
        return name in self._needs

    def value(self, name: str) -> Value:
        """The value with this name."""
        return self.builder.values[name]

    def of(self, name: str) -> str:
        """The gradient of a value, complete once its readers have been processed; "" if none."""
        return self._current.get(name, "")

    def accumulator(self, name: str) -> str:
        """The accumulator of a parameter's gradient; "" for a frozen or missing one.

        Raises:
          ModelError: the value is computed from trained parameters and has no accumulator.
        """
        result = self._accumulators.get(self._root(name), "") if name else ""
        if not result and name and self.needs(name):
            raise ModelError(
                f"value {name!r}: it is computed from trained parameters, where an op such as a "
                "normalisation expects a parameter (its scale or shift). Freeze the parameters it "
                "depends on, or leave it out."
            )
        return result

    # Actions for gradient rules.

    def temporary(self, name: str, shape: Sequence[int]) -> str:
        """A small fp32 value between two backward nodes."""
        return self.builder.value(name, shape, "f32", "statistic")

    def emit(
        self, name: str, inputs: Sequence[str], outputs: Sequence[str], attrs: Mapping
    ) -> None:
        """Add a backward node that contributes to no gradient itself."""
        first = next(o for o in outputs if o)
        self.builder.node(name, inputs, outputs, attrs, name=f"{first}.{name}", phase="backward")

    def contribute(
        self, name: str, op_name: str, inputs: Sequence[str], attrs: Mapping, *, shape=None
    ) -> None:
        """Add what op `op_name` computes into its first output to the gradient of `name`.

        Args:
          shape: shape of the contribution if it differs from the value's by dimensions of one; -1
            means all elements.
        """
        value = self.value(name)
        shape = value.shape if shape is None else tuple(value.size if d == -1 else d for d in shape)
        root = self._root(name)
        if root in self._accumulators:
            out = self._accumulators[root]
            if len(self.value(root).shape) > 1 and not op(op_name).rounds:
                part = self.builder.value(f"{name}.part", value.shape, "f32", "gradient")
                written = part if shape == value.shape else self._view(part, shape)
                self._append(op_name, inputs, written, {**attrs, "acc": 0})
                self._append("copy", [part], out, {"moves": _whole(value.size), "acc": 1})
                return
            if shape != self.value(out).shape:
                out = self._view(out, shape)
            self._append(op_name, inputs, out, {**attrs, "acc": 1})
            return
        before = self._current.get(name)
        role = "statistic" if value.role == "statistic" else "gradient"
        if before is None:
            out = self.builder.value(f"{name}.grad", shape, "f32", role)
            self._append(op_name, inputs, out, {**attrs, "acc": 0})
        elif self._waiting[self._root(before)] == {name}:
            out = self._view(before, shape)
            self._append(op_name, [*inputs, before], out, {**attrs, "acc": 1})
        else:
            part = self.builder.value(f"{name}.grad", shape, "f32", role)
            self._append(op_name, inputs, part, {**attrs, "acc": 0})
            out = self._sum(part, before)
        self._set(name, out if shape == value.shape else self._view(out, value.shape))

    def alias(self, name: str, gradient: str) -> None:
        """Add an existing gradient to the gradient of `name`."""
        root, shape = self._root(name), self.value(name).shape
        if root in self._accumulators or name in self._current:
            self.contribute(name, "copy", [gradient], {"moves": _whole(self.value(name).size)})
            return
        if self.value(gradient).shape != shape:
            gradient = self._view(gradient, shape)
        self._set(name, gradient)

    def start(self, output: str, target: str, loss: Loss) -> None:
        """Start with the gradient of the loss with respect to the model's output."""
        value = self.value(output)
        arrays = loss_arrays(self.builder, loss, value)
        attrs = loss_attrs(value, loss, arrays)
        self.contribute(output, backward_of(attrs), [output, target, *arrays.values()], attrs)

    def release(self, names: Sequence[str]) -> None:
        """Note that the gradients of these values are no longer needed by their producer's rule."""
        for name in names:
            gradient = self._current.get(name)
            if gradient:
                self._waiting[self._root(gradient)].discard(name)

    def _set(self, name: str, gradient: str) -> None:
        before = self._current.get(name)
        if before:
            self._waiting[self._root(before)].discard(name)
        self._current[name] = gradient
        self._waiting.setdefault(self._root(gradient), set()).add(name)

    def _sum(self, part: str, before: str) -> str:
        out = self._view(part, self.value(part).shape)
        attrs = {"moves": _whole(self.value(part).size), "acc": 1}
        self._append("copy", [before, part], out, attrs)
        return out

    def _append(self, op_name, inputs, out, attrs) -> None:
        self.builder.node(op_name, inputs, [out], attrs, name=f"{out}.{op_name}", phase="backward")

    def _view(self, name: str, shape: Sequence[int]) -> str:
        value = self.value(name)
        return self.builder.value(name, shape, value.dtype, value.role, name)

    def _root(self, name: str) -> str:
        while self.value(name).view_of:
            name = self.value(name).view_of
        return name


def _whole(size: int) -> tuple:
    """The moves of a `copy` of all elements."""
    return ((0, 0, 0, (size,), (1,), (1,)),)


def check_output(forward: Graph, outputs: Mapping[str, str], wanted: str | None) -> str:
    """The ir value of the loss's output: the named one, or else the first."""
    if wanted is None:
        return next(iter(outputs.values()))
    if wanted not in outputs:
        raise ModelError(f"output {wanted!r}: no such output; the model has {', '.join(outputs)}.")
    return outputs[wanted]
