"""Kernels loaded next to arrays of gigabytes (which are never touched) still reach constants."""

import subprocess
import sys

import pytest

SCRIPT = """
import mmap
import sys
import numpy as np
from edgetrain.kernels import registry
from edgetrain.kernels.cache import jit
from edgetrain.kernels.emission import engine

PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
names = ["gemm", "sgd", "fill", "copy", "adam", "ce_loss", "bn_stats", "lstm"]
kernels = [k for name in names for k in registry.variants(name)]
objects = {}
for kernel in kernels:
    storages = dict.fromkeys(kernel.spec.variables, "f32")
    objects[kernel.symbol(storages)] = kernel.object(storages, jit.host())
pages = [mmap.mmap(-1, mmap.PAGESIZE, flags=PRIVATE, prot=k % 4) for k in range(1000)]
array = np.zeros(3 * 2**30, np.uint8)
for page in pages[::2]:  # room for a section of constants, not for one of code
    page.close()
print(len(engine.load(objects.values(), objects, jit.host())))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="address space as Linux has it")
def test_nearby_keeps_code_within_reach_of_its_constants():
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-500:]
    assert int(done.stdout) > 8
