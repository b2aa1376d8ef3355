"""Code shared by several objects of a library is stored once and computes the same."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgetrain.kernels.cache import jit
from edgetrain.kernels.emission.objects import LIBRARY, emit_object
from edgetrain.kernels.linking.folding import Folding
from edgetrain.kernels.linking.relocatable import Relocatable
from edgetrain.kernels.linking.relocate import MACHINES
from edgetrain.kernels.linking.shared_object import shared_object
from tests.kernels.test_shared_object import NEEDS_HOST, TARGETS, called, opened

# A kernel, its helper, and the helper's helper; a constant outside the code for each factor.
TEXT = """
define internal i64 @et_leaf(i64 %x) noinline {{
  %a = mul i64 %x, {leaf}
  %b = xor i64 %a, %x
  %f = sitofp i64 %b to double
  %g = fmul double %f, {factor}
  %r = fptosi double %g to i64
  ret i64 %r
}}
define internal i64 @et_middle(i64 %x) noinline {{
  %a = call i64 @et_leaf(i64 %x)
  %b = add i64 %a, 7
  %c = call i64 @et_leaf(i64 %b)
  %d = add i64 %a, %c
  ret i64 %d
}}
define void @et_{name}(i64 %base, i64 %args, i64 %thread, i64 %nthreads) {{
  %p = inttoptr i64 %args to ptr
  %k = load i64, ptr %p
  %m = call i64 @et_middle(i64 %k)
  %f = sitofp i64 %m to double
  %g = fmul double %f, {own}
  %v = fptosi double %g to i64
  %out = inttoptr i64 %base to ptr
  store i64 %v, ptr %out
  ret void
}}
"""
LABELS = "\n".join(f"    i64 {k}, label %case{k}" for k in range(9))
# Code that a lookup table cannot replace.
CASES = "".join(
    f'case{k}:\n  %v{k} = call i64 asm sideeffect "", "=r,0"(i64 {k * k})\n  br label %end\n'
    for k in range(9)
)
RESULTS = "".join(f"[%v{k}, %case{k}], " for k in range(9))
TABLE = f"""
define internal i64 @et_chosen(i64 %x) noinline {{
  switch i64 %x, label %other [
{LABELS}
  ]
{CASES}
other:
  br label %end
end:
  %r = phi i64 {RESULTS} [-1, %other]
  ret i64 %r
}}
define void @et_NAME(i64 %base, i64 %args, i64 %thread, i64 %nthreads) {{
  %p = inttoptr i64 %args to ptr
  %k = load i64, ptr %p
  %v = call i64 @et_chosen(i64 %k)
  %w = add i64 %v, OWN
  %out = inttoptr i64 %base to ptr
  store i64 %w, ptr %out
  ret void
}}
"""


def with_table(name: str, own: int, target: jit.Target) -> bytes:
    return emit_object(TABLE.replace("NAME", name).replace("OWN", str(own)), target, LIBRARY)


def made(name: str, leaf: int, factor: float = 1.5, own: float = 1.25, target=None) -> bytes:
    text = TEXT.format(name=name, leaf=leaf, factor=factor, own=own)
    return emit_object(text, target or jit.host(), LIBRARY)


def kept(objects: list[bytes]) -> list[str]:
    """Return the names of the code sections in a library of these objects."""
    found = [Relocatable(code) for code in objects]
    defined = {
        one.name: (n, one)
        for n, code in enumerate(found)
        for one in code.symbols
        if one.visible and one.section
    }
    folding = Folding(found, defined, MACHINES[found[0].machine])
    names = [found[n].sections[k].name for n, k in folding.kept]
    return sorted(name for name in names if name.startswith(".text."))


@pytest.mark.parametrize("target", TARGETS)
def test_folding_keeps_a_helper_of_several_kernels_once(target):
    one, other = made("a", 3, target=TARGETS[target]), made("b", 3, own=2.5, target=TARGETS[target])
    assert kept([one, other]) == [".text.et_a", ".text.et_b", ".text.et_leaf", ".text.et_middle"]


@pytest.mark.parametrize("target", TARGETS)
def test_folding_tells_code_apart_by_what_it_calls_and_reads(target):
    """et_middle has the same bytes in all; et_leaf differs only in a constant outside the code."""
    first = made("a", 3, target=TARGETS[target])
    for other in (
        made("b", 5, own=2.5, target=TARGETS[target]),
        made("b", 3, factor=3.5, own=2.5, target=TARGETS[target]),
    ):
        found = kept([first, other])
        assert found.count(".text.et_leaf") == found.count(".text.et_middle") == 2


@pytest.mark.parametrize("target", TARGETS)
def test_folding_joins_code_and_its_table_of_jumps(target):
    objects = [with_table(name, own, TARGETS[target]) for name, own in (("a", 1), ("b", 2))]
    assert kept(objects) == [".text.et_a", ".text.et_b", ".text.et_chosen"]


@NEEDS_HOST
def test_a_table_of_jumps_leads_where_it_did(tmp_path):
    owns = {"a": 1, "b": 2}
    objects = [with_table(name, own, jit.host()) for name, own in owns.items()]
    library = opened(shared_object(objects), tmp_path)
    for name, own in owns.items():
        values = [called(library, f"et_{name}", k)[0] - own for k in range(10)]
        assert values == [*(k * k for k in range(9)), -1]


@NEEDS_HOST
@settings(max_examples=12, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([3, 5]), st.sampled_from([1.5, 3.5]), st.sampled_from([1.25, 2.5])
        ),
        min_size=1,
        max_size=5,
    )
)
def test_a_folded_library_computes_what_its_objects_do(tmp_path_factory, rows):
    objects = [made(f"k{n}", *row) for n, row in enumerate(rows)]
    folder = tmp_path_factory.mktemp("folded")
    whole = opened(shared_object(objects), folder)
    for number, (leaf, factor, own) in enumerate(rows):

        def small(x: int, leaf: int = leaf, factor: float = factor) -> int:
            return int(((x * leaf) ^ x) * factor)

        first = small(11)
        assert called(whole, f"et_k{number}", 11)[0] == int((first + small(first + 7)) * own)
    assert kept(objects).count(".text.et_leaf") == len({row[:2] for row in rows})
