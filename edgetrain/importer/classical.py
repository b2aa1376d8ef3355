"""Rewrites ai.onnx.ml nodes, as skl2onnx writes for linear models and scalers, as base ops.

Coefficients stored as attributes become arrays that can be trained; the exported file has the
original node with the new coefficients (metadata `edgetrain.attributes`). Nodes for other outputs,
such as class labels, are kept and cannot be trained.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from ..ops.onnx_ops import OnnxNode

DOMAIN = "ai.onnx.ml"
_TINY = np.array(np.finfo(np.float32).tiny, np.float32)  # keeps rows with norm 0 at zero
# Ops whose output has the rank of their first input, if constants beside it have at most two axes.
_KEEP_RANK = {
    "MatMul", "Add", "Sub", "Mul", "Div", "Identity", "Cast", "Relu", "Tanh", "Sigmoid", "Clip",
}  # fmt: skip
_NORMS = {"L1": "ReduceL1", "L2": "ReduceL2", "MAX": "ReduceMax"}


class Classical:
    """The nodes of a file, with ai.onnx.ml nodes rewritten if base ops can express them.

    Attributes:
      nodes: nodes in order.
      arrays: former attributes, by new name.
      attributes: name of a coefficient array -> [output of its node, attribute].

    A plain [1 - p, p], where p is the Sigmoid of a column, becomes the Softmax that it is.
    """

    def __init__(
        self,
        nodes: Sequence[OnnxNode],
        arrays: Mapping[str, np.ndarray],
        ranks: Mapping[str, int],
    ) -> None:
        """Rewrite nodes.

        Args:
          ranks: of the file's inputs, where known.
        """
        self.nodes: list[OnnxNode] = []
        self.arrays: dict[str, np.ndarray] = {}
        self.attributes: dict[str, list[str]] = {}
        self._known, self._ranks = arrays, ranks
        self._taken = {*arrays, *(name for node in nodes for name in (*node.inputs, *node.outputs))}
        self._makers: dict[str, OnnxNode] = {}
        self._scores: dict[str, str] = {}  # output of a logistic -> its argument
        for node in nodes:
            rewrite = self._both_classes if node.op_type == "Concat" else None
            if node.domain == DOMAIN:
                rewrite = getattr(self, f"_{node.op_type.rpartition('.')[2].lower()}", None)
            if rewrite is None or not rewrite(node):
                self._add(node)

    @property
    def fixed(self) -> set[str]:
        """Arrays that were not trained by gradients: offsets and scales of inputs, numbers."""
        return {*self.arrays} - {*self.attributes}

    def _add(self, node: OnnxNode) -> None:
        self.nodes.append(node)
        for name in node.outputs:
            self._makers[name] = node

    def _unique(self, name: str) -> str:
        while name in self._taken:
            name += "'"
        self._taken.add(name)
        return name

    def _array(self, node: OnnxNode, attribute: str, array: np.ndarray) -> str:
        name = self._unique(f"{node.name}.{attribute}")
        self.arrays[name] = np.asarray(array, np.float32)
        return name

    def _make(
        self, node: OnnxNode, op: str, inputs: Sequence[str], output: str = "", **attrs
    ) -> str:
        output = output or self._unique(f"{node.name}.{op}")
        self._add(OnnxNode(f"{node.name}.{op}", op, tuple(inputs), (output,), attrs))
        return output

    def _product(self, node: OnnxNode, x: str, rows: int, output: str = "") -> str:
        """x @ coefficients.T + intercepts, in the file's layout; "" if they do not fit."""
        coefficients = np.asarray(node.attrs.get("coefficients", []), np.float32)
        intercepts = np.asarray(node.attrs.get("intercepts", []), np.float32)
        if not rows or not coefficients.size or coefficients.size % rows:
            return ""
        if intercepts.size not in (0, rows):
            return ""
        names = [self._array(node, "coefficients", coefficients.reshape(rows, -1))]
        names += [self._array(node, "intercepts", intercepts)] if intercepts.size else []
        place = next(name for name in node.outputs if name)
        for name, kind in zip(names, ("coefficients", "intercepts"), strict=False):
            self.attributes[name] = [place, kind]
        x = self._make(node, "Cast", [x], to=1)
        return self._make(node, "Gemm", [x, *names], output, transB=1)

    # One rule per op; returns False to keep the node.

    def _linearclassifier(self, node: OnnxNode) -> bool:
        labels = node.attrs.get("classlabels_ints") or node.attrs.get("classlabels_strings") or []
        after = node.attrs.get("post_transform", "NONE")
        wanted = len(node.outputs) > 1 and node.outputs[1]
        if after not in ("NONE", "SOFTMAX", "LOGISTIC") or not wanted:
            return False
        scores = self._product(node, node.inputs[0], len(labels), wanted if after == "NONE" else "")
        if not scores:
            return False
        if after == "SOFTMAX":
            self._make(node, "Softmax", [scores], wanted, axis=1)
        elif after == "LOGISTIC":
            self._make(node, "Sigmoid", [scores], wanted)
            self._scores[wanted] = scores
        if node.outputs[0]:
            kept = (node.outputs[0],)
            attrs, op = node.attrs, node.op_type
            self._add(OnnxNode(node.name, op, node.inputs, kept, attrs, node.domain))
        return True

    def _linearregressor(self, node: OnnxNode) -> bool:
        if node.attrs.get("post_transform", "NONE") != "NONE":
            return False
        rows = int(node.attrs.get("targets", 1))
        return bool(self._product(node, node.inputs[0], rows, node.outputs[0]))

    def _scaler(self, node: OnnxNode) -> bool:
        x = self._make(node, "Cast", [node.inputs[0]], to=1)
        offset, scale = (node.attrs.get(key) for key in ("offset", "scale"))
        if offset:
            x = self._make(node, "Sub", [x, self._array(node, "offset", offset)])
        if scale:
            x = self._make(node, "Mul", [x, self._array(node, "scale", scale)])
        self._make(node, "Identity", [x], node.outputs[0])
        return True

    def _normalizer(self, node: OnnxNode) -> bool:
        x, y, norm = node.inputs[0], node.outputs[0], node.attrs.get("norm", "MAX")
        if norm not in _NORMS:
            return False
        maker = self._makers.get(x)
        if norm == "L1" and maker is not None and maker.op_type == "Softmax":
            self._make(node, "Identity", [x], y)
        elif norm == "L1" and x in self._scores:
            # sigmoid(z) / sum(sigmoid(z)) is a softmax of log(sigmoid(z)) = -softplus(-z).
            part = self._make(node, "Neg", [self._scores[x]])
            part = self._make(node, "Softplus", [part])
            part = self._make(node, "Mul", [part, self._array(node, "minus", np.array(-1.0))])
            self._make(node, "Softmax", [part], y, axis=1)
        else:
            x = self._make(node, "Cast", [x], to=1)
            size = self._make(node, _NORMS[norm], [x], axes=[-1], keepdims=1)
            if norm == "MAX":  # of numbers, not of magnitudes; rows with a maximum of 0 stay
                zero, one = (self._array(node, f"is{n}", np.array(n)) for n in (0, 1))
                is_zero = self._make(node, "Equal", [size, zero])
                size = self._make(node, "Where", [is_zero, one, size])
            else:
                size = self._make(node, "Max", [size, self._array(node, "tiny", np.array(_TINY))])
            self._make(node, "Div", [x, size], y)
        return True

    def _both_classes(self, node: OnnxNode) -> bool:
        """[1 - p, p] where p = sigmoid(z): the softmax of [-z / 2, z / 2]."""
        if len(node.inputs) != 2 or node.attrs.get("axis") not in (1, -1):
            return False
        rest, p = (self._source(name) for name in node.inputs)
        less, end = self._makers.get(rest), self._makers.get(p)
        if less is None or end is None or (less.op_type, end.op_type) != ("Sub", "Sigmoid"):
            return False
        if not self._is_column(end.inputs[0]):
            return False
        item = self._known.get(less.inputs[0])
        if item is None or not item.size or np.any(item != 1) or self._source(less.inputs[1]) != p:
            return False
        half = self._array(node, "half", np.array(0.5))
        half = self._make(node, "Mul", [end.inputs[0], half])
        scores = self._make(node, "Concat", [self._make(node, "Neg", [half]), half], axis=1)
        self._make(node, "Softmax", [scores], node.outputs[0], axis=1)
        return True

    def _is_column(self, name: str) -> bool:
        """Whether a value is known to be [n, 1]."""
        node = self._makers.get(name)
        if node is None:
            return False
        if node.op_type in ("Identity", "Cast"):
            return self._is_column(node.inputs[0])
        weight = self._array_of(node.inputs[1]) if len(node.inputs) > 1 else None
        if weight is None or node.op_type not in ("Gemm", "MatMul", "Add"):
            return False
        if node.op_type == "Add":
            return weight.size == 1 and weight.ndim <= 2 and self._is_column(node.inputs[0])
        rows = weight.T if node.attrs.get("transB") else weight
        is_matrix = node.op_type == "Gemm" or self._rank(node.inputs[0]) == 2
        return is_matrix and rows.ndim == 2 and rows.shape[1] == 1

    def _rank(self, name: str) -> int:
        """The number of axes of a value, if layers and functions of numbers lead to it; else 0."""
        while (node := self._makers.get(name)) is not None:
            if node.op_type in ("Gemm", "Flatten"):
                return 2
            others = [self._array_of(name) for name in node.inputs[1:]]
            flat = all(array is not None and array.ndim <= 2 for array in others)
            if not flat or node.op_type not in _KEEP_RANK:
                return 0
            name = node.inputs[0]
        return self._ranks.get(name, 0)

    def _array_of(self, name: str) -> np.ndarray | None:
        return self.arrays.get(name, self._known.get(name))

    def _source(self, name: str) -> str:
        """The value behind Identity and Cast to floats."""
        node = self._makers.get(name)
        while node is not None and node.op_type in ("Identity", "Cast"):
            if node.op_type == "Cast" and node.attrs.get("to") != 1:
                break
            name = node.inputs[0]
            node = self._makers.get(name)
        return name

    def _zipmap(self, node: OnnxNode) -> bool:
        """Pass the rows of numbers on, without names."""
        self._make(node, "Identity", node.inputs[:1], node.outputs[0])
        return True

    def _arrayfeatureextractor(self, node: OnnxNode) -> bool:
        """Columns at constant indices; labels at computed indices are not trained."""
        places = self._known.get(node.inputs[1])
        if places is None or node.inputs[0] in self._known:
            return False
        name = self._unique(f"{node.name}.places")
        self.arrays[name] = places.ravel().astype(np.int64)
        self._make(node, "Gather", [node.inputs[0], name], node.outputs[0], axis=-1)
        return True
