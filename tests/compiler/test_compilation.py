"""A Compilation shares results that options do not affect, and nothing else caches results."""

import ast
from dataclasses import fields, replace
from pathlib import Path

import pytest

import edgetrain.compiler
from edgetrain.api import make_options
from edgetrain.compiler.compilation import Compilation
from edgetrain.compiler.model import prepared, proof
from edgetrain.compiler.model.model_options import ModelOptions
from edgetrain.compiler.options import Options
from edgetrain.compiler.pipeline import build_graphs
from edgetrain.errors import EdgetrainError
from edgetrain.losses import MSE

from .nets import conv_bn_relu_conv

COMPILER = Path(edgetrain.compiler.__file__).parent
# Option -> another value: every option of the prepared model, and some of the others.
PREPARE = {
    "loss": MSE(), "losses": (("logits", MSE()), ("other", MSE())), "minibatch": 8,
    "dims": {"T": 2}, "batch_axis": {"x": 1}, "inputs": {"s": 1.0}, "new_head": {"": 5},
    "lora": "r=2,targets=fc", "seed": 1, "quantized": "float", "train": ("fc.*",),
    "freeze": ("fc.*",), "freeze_bn": True, "train_constants": ("c",), "allow_constants": True,
}  # fmt: skip
OTHERS = {
    "precision": "fp16", "microbatch": 2, "optimizer": "adam", "allow": ("rows",), "density": 0.5,
    "effort": "quick", "convolutions": "direct", "max_extra_forward": 1.0, "threads": 1,
    "model_memory": "int8", "saved": "int8", "frozen": "int8", "fused_update": True, "bptt": 2,
}  # fmt: skip


def compilation(**options) -> Compilation:
    return Compilation(conv_bn_relu_conv(), make_options(minibatch=4, **options))


def given(name: str, value):
    return getattr(make_options(**{name: value}), name)


@pytest.mark.parametrize("name", PREPARE)
def test_an_option_of_the_model_prepares_it_anew(name: str) -> None:
    first = compilation()
    other = first.with_options(**{name: given(name, PREPARE[name])})
    assert other.prepared is not first.prepared
    assert first.options == make_options(minibatch=4) and other.model is first.model


@pytest.mark.parametrize("name", OTHERS)
def test_other_options_share_the_prepared_model(name: str) -> None:
    first = compilation()
    other = first.with_options(**{name: given(name, OTHERS[name])})
    assert other.prepared is first.prepared
    assert other.options == replace(first.options, **{name: given(name, OTHERS[name])})


def test_every_option_of_the_prepared_model_is_tried() -> None:
    named = {field.name for field in fields(ModelOptions)} - {"terms"}
    assert {*PREPARE} == named | {"loss", "losses"}
    assert not {*OTHERS} & named and {*OTHERS} < {field.name for field in fields(Options)}


def test_a_prepared_model_reads_no_other_options() -> None:
    """Prepared models see only ModelOptions, which have no other fields."""
    first = compilation()
    made = prepared.PreparedModel(first.model, ModelOptions.of(first.options))
    assert made.samples == first.prepared.samples and made.axes == first.prepared.axes
    assert not hasattr(made.options, "precision") and not hasattr(made.options, "microbatch")


def test_samples_are_proved_once_for_options_that_share_a_model(monkeypatch) -> None:
    calls, real = [], proof._of_batches
    monkeypatch.setattr(proof, "_of_batches", lambda *args: calls.append(args) or real(*args))
    first = compilation()
    for other in (first, first.with_options(precision="fp16"), first.with_options(microbatch=2)):
        assert other.prepared.samples is first.prepared.samples
    assert len(calls) == 1
    assert first.with_options(freeze=("*",)).prepared.samples.kind == "independent"
    assert first.with_options(minibatch=8).prepared.samples.kind == "independent"
    assert len(calls) == 3


def outcome(given: Compilation) -> str:
    """Return the training graph, or the reason why it cannot be built."""
    try:
        return str(build_graphs(given, 4).train)
    except EdgetrainError as error:
        return str(error)


@pytest.mark.parametrize("name", {**PREPARE, **OTHERS})
def test_a_derived_compilation_makes_what_a_new_one_makes(name: str) -> None:
    first = compilation()
    assert outcome(first).count("conv") > 2
    changes = {name: given(name, {**PREPARE, **OTHERS}[name])}
    other = first.with_options(**changes)
    assert outcome(other) == outcome(Compilation(first.model, other.options))
    assert outcome(other.derived(first.options)) == outcome(first)


# Caches that modules may keep: they contain nothing from a model or its options.
KEPT = {
    ("cost.py", "_measured"): "rates of this machine",
    ("cost.py", "_kept"): "rates of this machine",
    (
        "remat/search/flat_problem.py",
        "_flat",
    ): "arrays of the last four problems",
    ("tapes/lowering.py", "_known"): "kernels by call and storages",
}
CONTAINERS = {
    "dict", "list", "set", "defaultdict", "OrderedDict", "deque", "Counter", "WeakKeyDictionary",
    "WeakValueDictionary", "cache", "lru_cache",
}  # fmt: skip


def last_name(node: ast.AST) -> str:
    """Return `WeakKeyDictionary` for `weakref.WeakKeyDictionary[Model, dict]()`."""
    while isinstance(node, ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return getattr(node, "attr", getattr(node, "id", ""))


def keeps(value: ast.AST | None) -> bool:
    """Whether the value is a cache, or a container that starts empty."""
    if isinstance(value, ast.Dict | ast.List):
        return not ast.unparse(value)[1:-1]
    copied = last_name(value or ast.Pass()) in ("dict", "list", "set")
    named = isinstance(value, ast.Call) and last_name(value) in CONTAINERS
    return named and not (copied and value.args)


def memos(tree: ast.Module) -> list[str]:
    """Return names in a module and its classes that could cache results."""
    found, bodies = [], [tree.body]
    while bodies:
        for node in bodies.pop():
            if isinstance(node, ast.ClassDef):
                bodies.append(node.body)
            if isinstance(node, ast.FunctionDef):
                caches = {last_name(decorator) for decorator in node.decorator_list}
                found += [node.name] * bool(caches & {"cache", "lru_cache"})
            if isinstance(node, ast.Assign | ast.AnnAssign) and keeps(node.value):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                found += [ast.unparse(target) for target in targets]
    return found


def test_no_module_of_the_compiler_keeps_what_it_computed() -> None:
    found = {
        (path.relative_to(COMPILER).as_posix(), name)
        for path in COMPILER.rglob("*.py")
        for name in memos(ast.parse(path.read_text()))
    }
    assert found == {*KEPT}


@pytest.mark.parametrize(
    "text",
    [
        "@functools.cache\ndef f(model): ...", "@lru_cache(maxsize=9)\ndef f(model, options): ...",
        "f: dict[Model, int] = {}", "f = WeakKeyDictionary[Model, int]()", "f = []",
        "class C:\n    f: dict[str, int] = {}", "f = collections.defaultdict(list)",
        "f = functools.cache(len)", "f = dict()",
    ],
)  # fmt: skip
def test_a_memo_is_found(text: str) -> None:
    assert memos(ast.parse(text)) == ["f"]
