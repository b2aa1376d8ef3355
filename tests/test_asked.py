"""Ask the object, never its name: no code of the compiler, the runtime or a kernel compares with
the name of an op, a format, a loss, a schedule or an optimizer, except for the lists below; no code
of the importer or the compiler with the type of an ONNX op, unless it rewrites nodes of this type.

What is true of such an object is an attribute of it. A list of names elsewhere silently misses the
next one: `--saved int8` once did not pack Celu, and bf16 was not rounded stochastically.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest

import edgetrain
from edgetrain.formats import FORMATS, FROZEN, MEMORIES
from edgetrain.losses import LOSSES
from edgetrain.ops.model import Model  # noqa: F401 - brings the families of ops
from edgetrain.ops.onnx_ops import onnx_names
from edgetrain.ops.registry import op_names
from edgetrain.optim import OPTIMIZERS, SCHEDULES

ROOT = Path(edgetrain.__file__).parent
NAMES = {*op_names(), *FORMATS, *MEMORIES, *FROZEN, *LOSSES, *OPTIMIZERS, *SCHEDULES}
ROOMS = ("compiler", "runtime", "kernels")
# Attributes that use the same words for something else, such as a value's role "constant".
OTHER = {"role", "phase", "mode", "kind", "target_kind"}

# These match patterns of several nodes, so they must compare ops.
FUSIONS = (
    "compiler/attention/", "compiler/bind/softmaxes.py", "compiler/passes/fusion.py",
    "compiler/passes/head.py", "compiler/passes/slicing.py", "compiler/passes/batch_norm.py",
    "compiler/model/objective.py",  # the parts of a loss: softmax, guards, dropout before it
    "compiler/tapes/limits.py",  # where(x == c, anything, x), one-hot labels
)  # fmt: skip
# File -> how many names it still compares with, and why. Numbers may only fall.
LEFT = {
    "compiler/passes/fused_update.py": (1, "one kernel alone writes gradients of sparse layers"),
    "compiler/passes/packed.py": (1, "a call of a kernel, of which no op is known"),
    "compiler/passes/touched_rows.py": (1, "one kernel alone leaves rows of a gradient at zero"),
    "runtime/loading/tapes.py": (1, "a call of a kernel, of which no op is known"),
    "kernels/emission/narrow.py": (4, "instructions and types of LLVM"),
    "kernels/reductions/norms.py": (2, "the norm l1, not the loss"),
    "kernels/reductions/reduce.py": (1, "the norm l1, not the loss"),
    "kernels/run/execution.py": (1, "float64 of a field, not a format of values"),
}
# Types of ONNX ops: facts about them are in ops/onnx_ops.py.
TYPES = {*onnx_names(), *(schema.name for schema in onnx.defs.get_all_schemas())}
REWRITTEN = {
    "compiler/bind/rebatch.py": (1, "an Expand that becomes one to the batch"),
    "compiler/bind/rebatch_steps.py": (7, "sizes of Expand, Slice and Resize are replaced"),
    "compiler/model/lora.py": (8, "products that get an adapter, and transposed weights"),
    "compiler/model/new_head.py": (6, "products that become a new layer"),
    "importer/classical.py": (27, "pipelines of scikit-learn become layers"),
    "importer/decode.py": (2, "ConstantOfShape becomes a constant, CastLike a Cast"),
    "importer/deduplication.py": (1, "an Identity that replaced a copy"),
    "importer/functions.py": (3, "their bodies are not functions"),
    "importer/initialise.py": (1, "ConstantOfShape as initial weights"),
    "importer/quantised.py": (1, "ConvInteger becomes a Conv"),
    "importer/types.py": (3, "the type is an attribute"),
}

# Files shared by all families of ops: a rule that compares with a name fails for the next op.
SHARED = (
    "samples",
    "structure",
    "sides",
    "storing",
    "strides",
    "registry",
    "onnx_ops",
    "folding",
    "batch_axis",
    "model",
)


def _docstrings(tree: ast.AST) -> set[int]:
    return {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}


def _names(node: ast.AST, known: set[str]) -> Iterator[str]:
    """Names in one side of a comparison: as a string, or as elements of a tuple, list or set."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        if node.value in known:
            yield node.value
    elif isinstance(node, ast.Tuple | ast.List | ast.Set):
        for one in node.elts:
            yield from _names(one, known)


def _is_other(side: ast.AST) -> bool:
    if isinstance(side, ast.Attribute):
        return side.attr in OTHER
    return isinstance(side, ast.Subscript) or isinstance(side, ast.Name) and side.id in OTHER


def asked(tree: ast.AST, known: set[str] = NAMES) -> list[tuple[int, str]]:
    """(line, name) of comparisons with a name, and of strings and tuples with several names."""
    found, docs = [], _docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if not any(map(_is_other, sides)):
                found += [(node.lineno, name) for side in sides for name in _names(side, known)]
        elif isinstance(node, ast.Assign):
            several = [*_names(node.value, known)]
            found += [(node.lineno, name) for name in several if len(several) > 1]
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs
        ):
            words = node.value.split()
            if len(words) > 1 and known.issuperset(words):
                found += [(node.lineno, word) for word in words]
    return found


def _trees(path: Path) -> Iterator[ast.AST]:
    tree = ast.parse(path.read_text())
    if path.relative_to(ROOT).parts[0] != "kernels":
        yield tree
        return
    for node in tree.body:  # a kernel's declaration names formats
        if isinstance(node, ast.FunctionDef):
            yield ast.Module(node.body, [])


def _found() -> dict[str, list[tuple[int, str]]]:
    out = {}
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            names = [hit for tree in _trees(path) for hit in asked(tree)]
            if names and not name.startswith(FUSIONS):
                out[name] = names
    return out


def test_no_file_asks_for_a_name():
    found = _found()
    counts = {name: len(hits) for name, hits in found.items()}
    left = {name: count for name, (count, _) in LEFT.items()}
    wrong = {name: hits for name, hits in found.items() if counts[name] != left.get(name, 0)}
    gone = left.keys() - counts.keys()
    assert (wrong, gone) == ({}, set()), "ask the object; where fewer are left, lower the number"


def test_no_file_asks_for_the_type_of_an_onnx_op():
    counts = {}
    for room in ("compiler", "importer"):
        for path in sorted((ROOT / room).rglob("*.py")):
            hits = asked(ast.parse(path.read_text()), TYPES - {"Constant"})
            if hits:
                counts[path.relative_to(ROOT).as_posix()] = len(hits)
    left = {name: count for name, (count, _) in REWRITTEN.items()}
    assert counts == left, "ask onnx_op(node.op_type); where fewer are left, lower the number"


@pytest.mark.parametrize("name", SHARED)
def test_what_families_of_ops_share_asks_for_no_name(name):
    tree = ast.parse((ROOT / "ops" / f"{name}.py").read_text())
    assert asked(tree) == asked(tree, TYPES) == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("if node.op == 'celu': pass", 1), ("x = node.op in ('elu', 'celu')", 2),
        ("y = store if storage.name == 'f16' else other", 1), ("READERS = 'conv_dw unary_bwd'", 2),
        ("_OPS = ('elu', 'celu')", 2), ("if value.role == 'constant': pass", 0),
        ("builder.node('mul', a, b)", 0), ("'''conv_dw unary_bwd'''", 0),
    ],
)  # fmt: skip
def test_names_are_found_where_they_are_asked_for(text, count):
    assert len(asked(ast.parse(text))) == count
