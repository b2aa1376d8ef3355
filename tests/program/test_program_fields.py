"""A Program's fields: one schema that knows every option, and a sentence for each mistake."""

import dataclasses
import json

import pytest

from edgetrain.api import compile as compile_
from edgetrain.compiler.options import Options
from edgetrain.errors import ProgramError
from edgetrain.losses import LOSSES
from edgetrain.optim import OPTIMIZERS, make_optimizer
from edgetrain.program import KIND, VERSION, writing
from edgetrain.program.container import read_container, write_container
from edgetrain.program.fields import check_program, check_recipe
from edgetrain.program.schema import Wrong
from edgetrain.runtime.loading.program import load_program
from edgetrain.sparse import REWIRINGS

from ..compiler.nets import conv_bn_relu_conv

pytestmark = pytest.mark.usefixtures("quick_planner")


@pytest.fixture(scope="module")
def program():
    return compile_(conv_bn_relu_conv(), minibatch=8, optimizer="adam", freeze=["fc.b"])


def changed(program, path, keys, value):
    """The Program's file with one field set, or removed if `value` is None."""
    program.save(path)
    tensors, meta = read_container(path, kind=KIND, versions=range(VERSION, VERSION + 1))
    fields = json.loads(meta["program"])
    holder = fields
    for key in keys[:-1]:
        holder = holder[key]
    holder[keys[-1]] = value
    if value is None:
        del holder[keys[-1]]
    meta["program"] = json.dumps(fields)
    write_container(path, tensors, meta, kind=KIND, version=VERSION)
    return path


LR = ("recipe", "optimizer", "lr")
SAYS = [
    (LR, "x", 'recipe.optimizer.lr: expected a finite number >= 0, found "x"'),
    (LR, float("nan"), "recipe.optimizer.lr: .*, found NaN"),
    (("recipe", "optimizer", "beta1"), 2, "recipe.optimizer.beta1: .* number >= 0 and < 1"),
    (("recipe", "optimizer", "name"), "sgd", "recipe.optimizer.momentum: expected this field"),
    (("recipe", "seed"), 2**63, "recipe.seed: expected a whole number"),
    (("recipe", "seed"), None, "recipe.seed: expected this field"),
    (("recipe", "colour"), "red", "recipe.colour: expected no field of this name"),
    (("recipe", "loss", "name"), "l7", "recipe.loss.name: expected one of"),
    (("recipe", "precision"), "fp8", "recipe.precision: expected one of fp32, fp16"),
    (("account", "by_kind"), 3, "account.by_kind: expected an object"),
    (("account", "extra_forward_flops"), "0", "account.extra_forward_flops: expected a finite"),
    (("account", "training"), [3], "account.training: expected an object"),
    (("account", "training", "frozen"), 3, "account.training.frozen: expected an object"),
    (("account", "training", "moves", "count"), None, "account.training.moves.count: expected"),
    (("account", "training", "trained", "names"), 3, "account.training.trained.names: expected"),
    (("account", "training", "dense"), [], "account.training.dense: expected an object"),
    (("persistent", 0, "offset"), 32, r"persistent\[0\].offset: .* that 64 divides"),
    (("persistent", 0, "role"), "king", r"persistent\[0\].role: expected one of"),
    (("persistent", 0, "dtype"), "f8", r"persistent\[0\].dtype: expected one of"),
    (("kernels", 0), ["relu"], r"kernels\[0\]: expected a list of 3 to 3"),
    (("inputs", "micro"), None, "inputs.micro: expected this field"),
    (("arena_nbytes",), True, "arena_nbytes: expected a whole number"),
    (("target_count",), 7, "target_count: 7 does not match"),
    (("limits",), {"nowhere": 3}, "limits: 'nowhere' is not an input"),
    (("aliases",), [], "aliases: expected an object"),
    (("model_name",), "\ud800", "model_name: expected text"),
]


@pytest.mark.parametrize("keys, value, said", SAYS, ids=[".".join(map(str, s[0])) for s in SAYS])
def test_load_names_the_field_that_is_wrong(program, tmp_path, keys, value, said) -> None:
    path = changed(program, tmp_path / "m.edge", keys, value)
    with pytest.raises(ProgramError, match=f"m.edge: {said}"):
        load_program(path)


_MAPPINGS = ("lora", "batch_axis", "inputs", "new_head", "lengths")  # for which {} is valid


def test_recipe_schema_knows_every_option() -> None:
    """A new option needs its row in program/fields.py."""
    recipe = json.loads(json.dumps(Options().recipe())) | {"sparse_layers": []}
    check_recipe(recipe, "recipe")
    for name in (f.name for f in dataclasses.fields(Options)):
        if name not in recipe:  # newer than the first Programs: only present if requested
            with pytest.raises(Wrong, match=f"recipe.{name}: (?!expected no field)"):
                check_recipe({**recipe, name: [] if name in _MAPPINGS else {}}, "recipe")
            continue
        if name == "convolutions":  # Programs from before this option have direct convolutions
            continue
        missing = {k: v for k, v in recipe.items() if k != name}
        with pytest.raises(Wrong, match=f"recipe.{name}: expected this field"):
            check_recipe(missing, "recipe")


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("method", [None, *REWIRINGS])
@pytest.mark.parametrize("loss", LOSSES)
def test_recipe_schema_takes_what_can_be_compiled(name, method, loss) -> None:
    rewiring = None if method is None else REWIRINGS[method]()
    chosen = Options(LOSSES[loss](), make_optimizer(name), density=0.5, rewiring=rewiring)
    recipe = json.loads(json.dumps(chosen.recipe())) | {"sparse_layers": []}
    check_recipe(recipe, "recipe")


def test_a_program_that_could_not_be_read_is_not_written(program, tmp_path) -> None:
    path = tmp_path / "m.edge"
    odd = dataclasses.replace(program, recipe={**program.recipe, "max_grad_norm": float("inf")})
    with pytest.raises(ProgramError, match="m.edge: recipe.max_grad_norm: .*, found Infinity"):
        odd.save(path)
    assert not path.exists()
    check_program(json.loads(json.dumps(writing.fields(program))), "")
