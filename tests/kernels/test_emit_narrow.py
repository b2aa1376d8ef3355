"""Which 64-bit integers are narrowed to 32 bits, and which must not be."""

import llvmlite.binding as llvm
import pytest

from edgetrain.kernels.emission.narrow import narrowed

LOOP = """
define void @k.sum(i64 %a0, i64 %n) {
  br label %head

head:
  %i = phi i64 [ 0, %0 ], [ %next, %body ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %body, label %end

body:
  %p = inttoptr i64 %a0 to ptr
  %at = shl nsw i64 %i, 2
  %e = getelementptr i8, ptr %p, i64 %at
  store i32 0, ptr %e, align 4
  %next = add nsw i64 %i, 1
  br label %head

end:
  ret void
}
"""


def one(body: str, parameters: str = "i64 %a, i64 %b, ptr %p") -> str:
    """Return function `k.f` with this body, narrowed with %a and %b as counts."""
    text = f"define void @k.f({parameters}) {{\n{body}\n  ret void\n}}\n"
    out = narrowed(text, {"k.f": ["count", "count"]})
    llvm.parse_assembly(out).verify()
    return out


def test_a_loop_over_counts_is_one_of_32_bits():
    out = narrowed(LOOP, {"k.sum": ["address", "count"]})
    llvm.parse_assembly(out).verify()
    for line in (
        'define void @k.sum(i32 %"a0.n", i32 %"n.n") {',
        '  %"i.n" = phi i32 [ 0, %0 ], [ %"next.n", %body ]',
        '  %more = icmp slt i32 %"i.n", %"n.n"',
        '  %e = getelementptr i8, ptr %p, i32 %"at.n"',
        '  %"next.n" = add nsw i32 %"i.n", 1',
    ):
        assert line in out.splitlines()


@pytest.mark.parametrize(
    "line",
    [
        "%r = add nsw i64 %a, %b", "%r = sdiv i64 %a, %b", "%r = mul i64 %a, -3",
        "%r = select i1 true, i64 %a, i64 7", "%r = freeze i64 %a", "%r = lshr i64 %a, 63",
        "%r = call i64 @llvm.smax.i64(i64 %a, i64 %b)", "%r = ashr exact i64 %a, 4",
    ],
)  # fmt: skip
def test_what_is_made_of_counts_is_a_count(line):
    declared = "declare i64 @llvm.smax.i64(i64, i64)\n" if "smax" in line else ""
    out = one(f"  {line}") if not declared else None
    if out is None:
        text = f"{declared}define void @k.f(i64 %a, i64 %b) {{\n  {line}\n  ret void\n}}\n"
        out = narrowed(text, {"k.f": ["count", "count"]})
    assert '%"r.n" = ' in out


@pytest.mark.parametrize(
    "lines",
    [
        "%w = load i64, ptr %p, align 8\n  %r = add i64 %w, %a",  # a 64-bit word
        "%w = load i32, ptr %p, align 4\n  %w64 = zext i32 %w to i64\n  %r = add i64 %w64, %a",
        "%r = mul i64 %a, -7046029254386353131",  # a constant over 32 bits
        "%r = shl i64 %a, 32",
        "%r = lshr i64 %a, %b",
        "%d = bitcast double 1.0 to i64\n  %r = xor i64 %d, %a",
    ],
)
def test_true_64_bit_values_keep_their_width(lines):
    out = one(f"  {lines}")
    assert '%"r.n"' not in out


def test_addresses_may_cross_the_middle_of_32_bits():
    text = "define void @k.f(i64 %a, i64 %b) {\n  %r = add nsw i64 %a, %b\n  ret void\n}\n"
    out = narrowed(text, {"k.f": ["address", "count"]})
    assert '  %"r.n" = add i32 %"a.n", %"b.n"' in out.splitlines()


def test_calls_of_kernels_hand_over_32_bits():
    text = (
        "define void @i0(i64 %base, i64 %args) {\n  %v = add i64 %base, 64\n"
        "  %w = load i64, ptr null, align 8\n"
        "  call void @k.f(i64 %v, i64 %w) #1\n  ret void\n}\n"
        "define void @k.f(i64 %a, i64 %b) {\n  ret void\n}\n"
    )
    out = narrowed(text, {"i0": ["address", "address"], "k.f": ["address", "count"]})
    assert '  call void @k.f(i32 %"v.n", i32 %c0.1) #1' in out.splitlines()
