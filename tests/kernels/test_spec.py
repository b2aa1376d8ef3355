"""The grammar of declarations: modes, extents, checks."""

import pytest

from edgetrain.errors import ProgramError
from edgetrain.kernels import registry
from edgetrain.kernels.declaration.expression import expression
from edgetrain.kernels.declaration.spec import Spec

TEXT = "x:r:S[n*c] y:w:T[n * c] key?:r:i64[4] ws:t[c*4 + 1] v:t[nthreads] scale:f n c"


@pytest.fixture
def spec() -> Spec:
    return Spec.parse(TEXT, "c > 0; n % c == 0")


def values(**changes):
    return {"x": 0, "y": 64, "key": -1, "scale": 1.0, "n": 6, "c": 3} | changes


def test_parse_reads_every_kind_of_operand(spec):
    found = [(o.name, o.mode, o.storage, o.optional) for o in spec.operands]
    assert found == [
        ("x", "r", "S", False),
        ("y", "w", "T", False),
        ("key", "r", "i64", True),
        ("ws", "t", "", False),
        ("v", "t", "", False),
        ("scale", "f", "", False),
        ("n", "i", "", False),
        ("c", "i", "", False),
    ]
    assert (spec.variables, spec.kinds, spec.words) == (("S", "T"), "rrrttfii", 10)


def test_extents_are_bytes_of_present_references(spec):
    storages = {"S": "f16", "T": "f32"}
    assert spec.extents(values(), storages, 2, 16) == {"x": 36, "y": 72}
    assert spec.extents(values(key=128), storages, 2, 16)["key"] == 32


def test_scratch_is_rounded_up_for_each_operand(spec):
    assert spec.scratch_nbytes(values(), 2, 16) == 128
    assert spec.scratch_nbytes(values(n=60, c=20), 2, 16) == 192


@pytest.mark.parametrize("changes", [{"c": 4}, {"c": 0}, {"c": -3}])
def test_extents_refuses_integers_that_fail_a_check(spec, changes):
    with pytest.raises(ProgramError, match="contradict|division|modulo|expected"):
        spec.extents(values(**changes), {"S": "f16", "T": "f32"}, 2, 16)


def test_extents_refuses_division_by_zero():
    spec = Spec.parse("x:r:f32[n // c] n c")
    with pytest.raises(ProgramError, match="n"):
        spec.extents({"x": 0, "n": 6, "c": 0}, {}, 1, 16)


@pytest.mark.parametrize("text", ["x:q:S[n]", "x::", "9-"])
def test_parse_refuses_words_outside_the_grammar(text):
    with pytest.raises(ValueError, match="declaration"):
        Spec.parse(text)


GROUPS = "x:r:f32[nx] y:w:f32[prod(d)] nx d[3] xs[3]=signed xo"


def test_a_group_is_one_field_of_many_operands():
    spec = Spec.parse(GROUPS)
    assert spec.fields == (("x", 0), ("y", 0), ("nx", 0), ("d", 3), ("xs", 3), ("xo", 0))
    names = [o.name for o in spec.operands]
    assert names == ["x", "y", "nx", "d0", "d1", "d2", "xs0", "xs1", "xs2", "xo"]
    assert (spec.kinds, spec.words) == ("rr" + "i" * 8, 10)


def test_flat_gives_a_group_number_by_number():
    spec = Spec.parse(GROUPS)
    found = spec.flat({"nx": 5, "d": [1, 2, 3]})
    assert found == {"nx": 5, "d0": 1, "d1": 2, "d2": 3}
    with pytest.raises(ValueError, match="shorter|longer"):
        spec.flat({"d": [1, 2]})


@pytest.mark.parametrize(
    ("dims", "steps", "origin", "covered"),
    [
        ((2, 3, 4), (12, 4, 1), 0, True),
        ((2, 3, 4), (12, 4, 1), 1, False),
        ((2, 3, 4), (-12, 4, 1), 12, True),
        ((2, 3, 4), (-12, 4, 1), 11, False),
        ((1, 1, 1), (9, 9, 9), 23, True),
        ((0, 3, 4), (12, 4, 1), 0, False),
    ],
)
def test_checks_see_groups(dims, steps, origin, covered):
    spec = Spec.parse(GROUPS, "least(d) > 0;covers(nx, xo, d, xs)")
    values = spec.flat({"x": 0, "y": 64, "nx": 24, "d": dims, "xs": steps, "xo": origin})
    if covered:
        assert spec.extents(values, {}, 1, 16)["y"] == 4 * dims[0] * dims[1] * dims[2]
    else:
        with pytest.raises(ProgramError, match="contradict"):
            spec.extents(values, {}, 1, 16)


def test_every_declaration_is_in_the_grammar() -> None:
    """Declarations are parsed on use; this parses all of them."""
    for name in registry.names():
        for kernel in registry.variants(name):
            spec = kernel.spec
            parts = [*spec.checks, spec.loops, kernel.when, *(o.extent for o in spec.operands)]
            for part in filter(None, parts):
                expression(part.text)
