"""Planning with cached loops compiles nothing and imports no compiler."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLAN = """
import json, subprocess, sys
import edgetrain as et
started = []
popen = subprocess.Popen
subprocess.Popen = lambda *args, **more: started.append(args) or popen(*args, **more)
facts = et.plan(et.load_onnx("examples/digits/model.onnx"), loss="cross_entropy", minibatch=32)
compilers = {"numba", "llvmlite", "scipy", "edgetrain.kernels.loops.text"}
print(json.dumps([facts["arena_nbytes"], sorted(compilers & set(sys.modules)), len(started)]))
"""


def planned() -> list:
    ended = subprocess.run(
        [sys.executable, "-c", PLAN], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return json.loads(ended.stdout)


def test_a_warm_plan_imports_no_compiler_and_starts_none():
    planned()  # fills the cache
    arena_nbytes, compilers, started = planned()
    assert arena_nbytes > 0 and compilers == [] and started == 0
