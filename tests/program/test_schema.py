"""JSON fields: an error names the field."""

import math

import pytest

from edgetrain.errors import ProgramError
from edgetrain.program import schema
from edgetrain.program.schema import (
    Wrong,
    boolean,
    by_name,
    integer,
    number,
    one_of,
    optional,
    parse,
    plain,
    record,
    row,
    several,
    text,
    verify,
)

RATES = record({"lr": number(0), "kind": one_of("sgd", "adam")}, {"eps": number(above=0, below=1)})
FIELDS = record({
    "recipe": record({"optimizer": RATES}),
    "shape": several(integer(0, 9), most=3),
    "pair": row(text(3), optional(boolean)),
    "limits": by_name(integer(1, 2**62, 2)),
    "facts": plain(2),
})  # fmt: skip
SOUND = {
    "recipe": {"optimizer": {"lr": 0.5, "kind": "sgd", "eps": 1e-8}},
    "shape": [1, 2],
    "pair": ["abc", None],
    "limits": {"x": 4},
    "facts": {"a": [1, 2.5, "b", None, True]},
}


def changed(value, *keys):
    out = parse(schema.json.dumps(SOUND))
    holder = out
    for key in keys[:-1]:
        holder = holder[key]
    holder[keys[-1]] = value
    return out


LR = ("recipe", "optimizer", "lr")
RATE = "recipe.optimizer.lr: expected a finite number >= 0, found "
WRONG = [
    (LR, "x", RATE + '"x"'),
    (LR, None, RATE + "null"),
    (LR, True, RATE + "true"),
    (LR, -1, RATE + "-1"),
    (LR, math.nan, RATE + "NaN"),
    (LR, math.inf, RATE + "Infinity"),
    (LR, 10**400, RATE + "1" + "0" * 59 + ".."),
    (LR, [1], RATE + "a list"),
    (("recipe", "optimizer", "eps"), 1, "recipe.optimizer.eps: expected a finite number < 1 "),
    (("recipe", "optimizer", "kind"), "SGD", "recipe.optimizer.kind: expected one of sgd, adam"),
    (("recipe", "optimizer", "kind"), ["sgd"], "recipe.optimizer.kind: expected one of sgd, adam"),
    (("recipe", "optimizer", "mu"), 1, "recipe.optimizer.mu: expected no field of this name"),
    (("recipe", "optimizer"), [], "recipe.optimizer: expected an object, found a list"),
    (("recipe", "a\nb"), 1, r'recipe."a\nb": expected no field'),
    (("shape",), [1, 2, 3, 4], "shape: expected a list of 0 to 3 items, found a list of 4"),
    (("shape",), {"0": 1}, "shape: expected a list of 0 to 3 items, found an object"),
    (("shape", 1), 1.0, "shape[1]: expected a whole number from 0 to 9, found 1.0"),
    (("shape", 1), True, "shape[1]: expected a whole number from 0 to 9, found true"),
    (("shape", 0), 10, "shape[0]: expected a whole number from 0 to 9, found 10"),
    (("pair",), ["abc"], "pair: expected a list of 2 to 2 items, found a list of 1"),
    (("pair", 0), "abcd", "pair[0]: expected text of at most 3 characters"),
    (("pair", 0), "\ud800", r'pair[0]: expected text of at most 3 characters, found "\ud800"'),
    (("pair", 1), 0, "pair[1]: expected true or false, found 0"),
    (("limits", "x"), 3, "limits.x: expected a whole number from 1 to 4611686018427387904 that 2"),
    (("limits", "\ud800"), 2, r'limits."\ud800": expected text'),
    (("facts",), [[[1]]], "facts[0][0]: expected numbers or text, found a list"),
    (("facts",), [math.inf], "facts[0]: expected a finite number, found Infinity"),
]


def test_sound_fields_pass() -> None:
    verify(FIELDS, SOUND, "a.edge", ProgramError, "")


@pytest.mark.parametrize("keys, value, said", WRONG, ids=range(len(WRONG)))
def test_wrong_fields_are_named(keys, value, said) -> None:
    with pytest.raises(ProgramError) as caught:
        verify(FIELDS, changed(value, *keys), "a.edge", ProgramError, "Compile it again.")
    message = str(caught.value)
    assert message.startswith(f"a.edge: {said}") and message.endswith(". Compile it again.")


def test_missing_fields_are_named() -> None:
    fields = {**SOUND, "recipe": {"optimizer": {"lr": 1}}}
    with pytest.raises(Wrong, match="recipe.optimizer.kind: expected this field, found none"):
        FIELDS(fields, "")


@pytest.mark.parametrize(
    "data",
    [
        "", "{", '{"a": 1, "a": 2}', '{"b": {"a": 1, "a": 2}}', "[" * 100_000, b"\xff", b"{}\x00",
        '{"a": ' + "9" * 5000 + "}", "[1,]",
    ],
)  # fmt: skip
def test_parse_refuses_what_is_no_json(data) -> None:
    with pytest.raises(Wrong, match="expected JSON, found "):
        parse(data)
