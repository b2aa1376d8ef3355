"""Partial vectors without masked instructions: every lane count, at the end of a page."""

import ctypes
import mmap

import numpy as np
import pytest

from edgetrain.kernels.cache import jit
from edgetrain.kernels.cache.load import opened
from edgetrain.kernels.emission.objects import HOST, emit_object
from edgetrain.kernels.emission.partial import PREFIX, without_masks

_ENTRY = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)
_TYPES = {"i8": np.int8, "half": np.float16, "float": np.float32, "double": np.float64}
_NAMES = {"i8": "i8", "half": "f16", "float": "f32", "double": "f64"}


def _text(name: str, kind: str, mask: str, rest: str) -> str:
    """Load the first lanes of `in`, store all lanes at `out`, then the first lanes after them."""
    vector, suffix = f"<16 x {kind}>", f"v16{_NAMES[kind]}.p0"
    nbytes = np.dtype(_TYPES[kind]).itemsize
    lanes = ", ".join(f"i32 {k}" for k in range(16))
    return f"""
declare {vector} @llvm.masked.load.{suffix}(ptr captures(none), <16 x i1>, {vector})
declare void @llvm.masked.store.{suffix}({vector}, ptr captures(none), <16 x i1>)
define void @{name}(i64 %out, i64 %in, i64 %wide, i64 %nthreads) {{
  %p = inttoptr i64 %in to ptr
  %q = inttoptr i64 %out to ptr
  %count = trunc i64 %wide to i32
  %one = insertelement <16 x i32> poison, i32 %count, i64 0
  %"a splat" = shufflevector <16 x i32> %one, <16 x i32> poison, <16 x i32> zeroinitializer
  %first = icmp sgt <16 x i32> %"a splat", <{lanes}>
  %x = tail call {vector} @llvm.masked.load.{suffix}(ptr align {nbytes} %p, <16 x i1> {mask}, \
{vector} {rest})
  store {vector} %x, ptr %q, align 1
  %r = getelementptr {kind}, ptr %q, i32 16
  tail call void @llvm.masked.store.{suffix}({vector} %x, ptr align {nbytes} %r, <16 x i1> {mask})
  ret void
}}
"""


def _at_end(array: np.ndarray) -> tuple[mmap.mmap, int]:
    """Map memory that ends with the array, before an unreadable page; return it and the address."""
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 2 * page)
    where = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(where + page), page, 0) == 0
    memory[page - array.nbytes : page] = array.tobytes()
    return memory, where + page - array.nbytes


def _same(run, kind: str, count: int) -> None:
    some = max(0, min(count, 16))
    given = np.arange(1, some + 1).astype(_TYPES[kind])
    out = np.full(48, 77, _TYPES[kind])
    memory, address = _at_end(given)
    run(out.ctypes.data, address, count, 1)
    wanted = np.full(48, 77, _TYPES[kind])
    wanted[:16] = 0
    wanted[:some] = wanted[16 : 16 + some] = given
    np.testing.assert_array_equal(out, wanted)
    del memory


def _compiled(text: str, name: str):
    made = without_masks(text)
    assert "call" in made and f"@{PREFIX}" in made and "call void @llvm.masked" not in made
    return _ENTRY(opened([emit_object(made, jit.host(), HOST)], [name])[name])


@pytest.mark.parametrize("kind", _TYPES)
def test_first_lanes_are_copied_whatever_their_number(kind):
    name = f"et_first_{kind}"
    run = _compiled(_text(name, kind, "%first", "zeroinitializer"), name)
    for count in (-(2**31), -5, *range(18), 2**31 - 1):
        _same(run, kind, count)


@pytest.mark.parametrize("count", [0, 1, 3, 4, 7, 10, 13, 15])
def test_a_known_number_of_lanes_is_copied_too(count):
    bits = ", ".join(f"i1 {'true' if k < count else 'false'}" for k in range(16))
    unread = ", ".join(f"float {'poison' if k < count else '0.000000e+00'}" for k in range(16))
    for kind, rest in (("float", f"<{unread}>"), ("i8", "zeroinitializer")):
        name = f"et_first_{kind}_{count}"
        _same(_compiled(_text(name, kind, f"<{bits}>", rest), name), kind, count)


@pytest.mark.parametrize(
    ("mask", "rest"),
    [
        ("%other", "zeroinitializer"),
        ("<" + ", ".join(f"i1 {'true' if k % 2 else 'false'}" for k in range(16)) + ">", "poison"),
        ("%first", "<" + ", ".join("float 1.000000e+00" for _ in range(16)) + ">"),
    ],
)
def test_other_masks_stay(mask, rest):
    text = _text("et_others", "float", mask, rest)
    made = without_masks(text)
    assert "<16 x float> @llvm.masked.load.v16f32.p0(ptr align 4" in made
