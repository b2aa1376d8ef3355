"""A bundle's page in Chromium: it trains, and continues where it was after any reload."""

import random
import time

import pytest
from onnx import save

import edgetrain as et
from edgetrain.api import bundle
from edgetrain.data.registry import open_data
from edgetrain.runtime.samples.check import checked_run
from tests.bundle import node
from tests.bundle.browser import missing, served, tab
from tests.compiler.nets import Net
from tests.digits_runs import MODEL

WHY = missing() or node.missing()
pytestmark = pytest.mark.skipif(bool(WHY), reason=WHY or "Chromium is here")
STEPS, RELOADS = 400, 20


@pytest.mark.slow
def test_reloads_at_any_moment_change_no_bit(module_folder, module_program, tmp_path):
    draw = random.Random(0)
    with served(module_folder) as address, tab(tmp_path / "profile") as page:
        page.open(f"{address}/index.html?steps={STEPS}")
        for _ in range(RELOADS):
            page.waited(lambda facts: "ready" in facts)
            time.sleep(draw.uniform(0, 0.4))
            page.open(f"{address}/index.html?steps={STEPS}")
        end = page.waited(lambda facts: facts.get("step") == str(STEPS) and "digest" in facts)
        assert end["digest"] == f"{checked_run(module_program, STEPS).digest:08x}"
        assert page.waited(lambda facts: "bits" in facts)["bits"] == "true"


@pytest.mark.slow
def test_pictures_of_any_size_are_drawn(tmp_path):
    """JavaScript takes about 120,000 arguments; a picture here has 129,600 values."""
    net = Net(1, 360, 360)
    net.add("AveragePool", ["x"], "small", kernel_shape=[36, 36], strides=[36, 36])
    net.add("Flatten", ["small"], "flat")
    net.add("Gemm", ["flat", net.weight("w", 100, 3), net.weight("b", 3)], "y")
    save(net.proto("y"), tmp_path / "net.onnx")
    model = et.load_onnx(tmp_path / "net.onnx")
    bundle(et.compile(model, target="wasm32", minibatch=2), tmp_path / "page", name="large")
    with served(tmp_path / "page") as address, tab(tmp_path / "profile") as page:
        page.open(f"{address}/index.html?steps=2")
        page.waited(lambda facts: facts.get("step") == "2" and "digest" in facts)
        assert page.run("return document.querySelectorAll('#samples canvas').length") == 8


@pytest.mark.slow
def test_the_page_learns_the_digits(tmp_path):
    program = et.compile(
        et.load_onnx(MODEL), target="wasm32", minibatch=32,
        optimizer=et.SGD(lr=0.03, momentum=0.9, nesterov=True, weight_decay=5e-4),
    )  # fmt: skip
    made = bundle(program, tmp_path / "page", name="digits", data=open_data("digits"))
    with served(tmp_path / "page") as address, tab(tmp_path / "profile") as page:
        page.open(f"{address}/index.html?steps=450")  # ten epochs
        end = page.waited(lambda facts: facts.get("step") == "450" and "digest" in facts)
        assert float(end["accuracy"]) >= 0.97
        assert int(end["memory"]) == made["module_nbytes"]["memory"]
        picture = page.picture()
    assert picture[:4] == b"\x89PNG" and len(picture) > 20_000
    (tmp_path / "page.png").write_bytes(picture)
