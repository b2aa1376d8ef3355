"""Compilation: operands of every kind arrive, objects are cached, a second start needs no numba."""

import os
import subprocess
import sys

import numpy as np
import pytest

from edgetrain.kernels import registry
from edgetrain.kernels.cache import disk, jit
from edgetrain.kernels.emission import objects

from .harness import call, declared


def _probe():
    from edgetrain.kernels.language.prim import st_f64, st_i64

    def run(thread, nthreads, args):
        if thread == nthreads - 1:
            st_i64(args.y, 0, nthreads)
            st_i64(args.y, 1, args.n)
            st_i64(args.y, 2, args.absent)
            st_i64(args.y, 3, args.ws & 63)
            st_f64(args.f, 0, args.scale)
        st_i64(args.ws, args.n - 1, thread)  # the last word of this thread's scratch

    return run


PROBE = declared("probe", "y:w:i64[4] f:w:f64[1] absent?:r:f32[n] ws:t[8*n] n scale:f", _probe)


@pytest.mark.parametrize("nthreads", [1, 3])
def test_kernel_gets_operands_of_every_kind(nthreads):
    out = call(PROBE, nthreads=nthreads, y=(4,), f=(1,), n=5, scale=-0.1)
    np.testing.assert_array_equal(out["y"], [nthreads, 5, 0, 0])
    assert out["f"][0] == np.float32(-0.1)


_SECOND_START = """
import sys
from edgetrain.kernels import registry
from edgetrain.kernels.cache import disk, jit
from edgetrain.kernels.cache.load import load
kernel = registry.variants("loss_total")[0]
code = kernel.object({}, jit.host())
assert all(load({kernel.symbol({}): lambda: code}).values())
print(len(code))
"""


def test_object_is_the_same_from_the_cache(tmp_path):
    environment = {**os.environ, "EDGETRAIN_CACHE": str(tmp_path)}
    sizes = [
        subprocess.run(
            [sys.executable, "-c", _SECOND_START],
            env=environment, capture_output=True, text=True, check=True,
        ).stdout
        for _ in range(2)
    ]  # fmt: skip
    assert sizes[0] == sizes[1] and len(list((tmp_path / "objects").iterdir())) == 2


def test_objects_for_builds_once(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "directory", lambda: tmp_path)
    kernel = registry.variants("loss_total")[0]
    first = kernel.object({}, jit.host())

    def build():
        raise AssertionError("compiled although the object is kept")

    (again,) = jit.objects_for(
        kernel.symbol({}), build, kernel.spec.kinds, [jit.host()], "losses.sums", kernel.spec.fields
    )
    assert first == again


def test_symbol_names_kernel_variant_and_storages():
    kernel = next(k for k in registry.variants("sgd") if k.variant == "plain")
    assert kernel.symbol({"W": "f16", "G": "f16", "V": "f32"}) == "et_sgd__plain__f16__f16__f32"


def test_narrow_division_divides_in_32_bits():
    text = '  %"q.1" = sdiv i64 %a, %"b.2"\n  %r = urem i64 %a, 7\n'
    narrowed = objects._narrow_division(text)
    assert narrowed.count("sdiv i32") == narrowed.count("urem i32") == 1
    assert " i64 %a, " not in narrowed.replace("trunc i64 %a", "")
