"""User samples on a module's page become the same inputs as from edgetrain's data sources."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from edgetrain.bundle.names import TEMPLATES
from edgetrain.data.registry import open_data
from edgetrain.data.sources import pictures, sounds
from edgetrain.errors import DataError

pytestmark = pytest.mark.skipif(
    not shutil.which("node"), reason="node not installed; on Debian: apt install nodejs"
)
_BEGIN = """
import { readFileSync } from "node:fs";
const page = await import({path}), given = JSON.parse(readFileSync(0, "utf8"));
const print = (value) => console.log(JSON.stringify(value));
"""


def said(folder: Path, script: str, given: object) -> object:
    """Run a script; return what it prints as JSON. `page`: the page's functions; `given`: input."""
    library = folder / "page_samples.mjs"
    library.write_text((TEMPLATES / "page_samples.js").read_text())
    text = _BEGIN.replace("{path}", json.dumps(str(library))) + script
    command = ["node", "--input-type=module", "-e", text]
    done = subprocess.run(command, capture_output=True, text=True, input=json.dumps(given))
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


COVERING = """
print(given.map(({ pixels, w, h, shape }) => {
  const [channels, height, width] = page.pictureOf(shape);
  const bytes = page.covering(pixels, w, h, channels, height, width);
  return [...page.valuesOf(bytes, shape)];
}));
"""


def test_a_picture_has_the_values_of_images_dir(tmp_path):
    """Pillow's scaling, bit by bit: larger, smaller, grey, channels last, strips."""
    Image = pytest.importorskip("PIL.Image")
    draw, given, wanted = np.random.default_rng(0), [], []
    for number, (w, h, shape) in enumerate(
        [(50, 40, (3, 16, 16)), (9, 13, (1, 28, 28)), (31, 31, (20, 24, 3)), (8, 8, (1, 8, 8)),
         (640, 4, (3, 12, 20)), (5, 5, (7, 11))]
    ):  # fmt: skip
        pixels = draw.integers(0, 256, (h, w, 4), np.uint8)
        pixels[..., 3] = 255
        place = tmp_path / f"{number}" / "a"
        place.mkdir(parents=True)
        Image.fromarray(pixels[..., :3]).save(place / "one.png")
        source = open_data(f"images:{place.parent}")
        source.adapt({"x": shape})
        found = np.zeros((1, *shape), np.float32)
        source.fill(np.array([0]), {"x": found})
        wanted.append(found.ravel().tolist())
        given.append({"pixels": pixels.ravel().tolist(), "w": w, "h": h, "shape": shape})
    assert said(tmp_path, COVERING, given) == wanted


def test_a_strip_too_large_to_scale_is_scaled_in_its_middle(tmp_path):
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(1).integers(0, 256, (1, 6000, 4), np.uint8)
    grey = image.fromarray(pixels[..., :3]).convert("L")
    wanted = np.asarray(pictures._covering(grey, 100, 100), np.float32) * np.float32(1 / 255)
    given = [{"pixels": pixels.ravel().tolist(), "w": 6000, "h": 1, "shape": [100, 100]}]
    assert said(tmp_path, COVERING, given) == [wanted.ravel().tolist()]


SOUNDS = """
print(given.map(({ samples, rate, shape }) =>
  [...page.soundValues(Float32Array.from(samples), rate, shape)]));
"""


def test_a_sound_has_the_features_of_sounds_dir(tmp_path):
    draw, given, wanted = np.random.default_rng(2), [], []
    for rate, count, shape in (
        (8000, 9000, (1, 20, 30)), (16000, 3000, (40, 49)), (44100, 50000, (1, 64, 10)),
        (8000, 500, (1, 800)), (8000, 901, (400,)),
    ):  # fmt: skip
        samples = draw.uniform(-1, 1, count).astype(np.float32)
        wide = shape[1:] if shape[0] == 1 else shape
        if len(wide) == 2:
            made = sounds.log_mel(
                sounds.fitted(samples, sounds._spanned(rate, wide[1])), rate, *wide
            )
        else:
            made = sounds.fitted(samples, wide[0])
        wanted.append(made)
        given.append({"samples": samples.tolist(), "rate": rate, "shape": shape})
    for found, made in zip(said(tmp_path, SOUNDS, given), wanted, strict=True):
        # Float64 sums in another order, rounded once.
        np.testing.assert_allclose(np.float32(found), made.ravel(), rtol=3e-6, atol=1e-6)


ROWS = """
const classes = { elements: 1, type: "i32", limit: 3 }, numbers = { elements: 2, type: "f32" };
const plain = ({ names, rows }) => [names, rows.map(({ x, y }) => [[...x], y && [...y]])];
const tried = (...given) => {
  try { page.rowsOf(...given); } catch (error) { return error.message; }
};
print({
  words: plain(page.rowsOf('a,b,kind\\n1,2,"pear"\\n3,4.5,apple\\n', 2, classes)),
  known: plain(page.rowsOf("1;2;pear", 2, classes, ["pear", "apple"])),
  digits: plain(page.rowsOf("1\\t2\\t2\\r\\n3\\t4\\t0", 2, classes)),
  inputs: plain(page.rowsOf("1 2\\n3   4", 2, classes)),
  labelled: plain(page.rowsOf("kind,a,b\\npear,1,2\\napple,3,4", 2, classes, [], 3, "kind")),
  unlabelled: plain(page.rowsOf("a,b\\n1,2", 2, classes, [], 3, "kind")),
  numbers: plain(page.rowsOf("1,2,.5,-1e3", 2, numbers)),
  faults: [tried("1,2,3,4", 2, classes), tried("1,x,2", 2, classes), tried("1,2,3", 2, classes),
    tried("", 2, classes), tried("1,2,nan,0", 2, numbers),
    tried("1,2,plum", 2, classes, ["a", "b", "c"]),
    tried("a,b,c\\n1,2,0", 2, classes, [], 3, "kind"),
    tried("1,2,0", 2, classes, [], 3, "kind")],
});
"""


def test_rows_of_a_table(tmp_path):
    found = said(tmp_path, ROWS, None)
    assert found["words"] == [["apple", "pear"], [[[1, 2], [1]], [[3, 4.5], [0]]]]
    assert found["known"] == [["pear", "apple"], [[[1, 2], [0]]]]
    assert found["digits"] == [[], [[[1, 2], [2]], [[3, 4], [0]]]]
    assert found["inputs"] == [[], [[[1, 2], None], [[3, 4], None]]]
    assert found["numbers"] == [[], [[[1, 2], [0.5, -1000]]]]
    assert found["labelled"] == [["apple", "pear"], [[[1, 2], [1]], [[3, 4], [0]]]]
    assert found["unlabelled"] == [[], [[[1, 2], None]]]
    columns, word, most, empty, number, unknown, absent, headless = found["faults"]
    assert "'kind'" in absent and "a, b, c" in absent and "no header" in headless
    assert "line 1: 4 columns" in columns and "2" in columns and "3" in columns
    assert "line 1: 'x'" in word and "line 1" in most and "3 classes" in most
    assert "empty" in empty and "'nan'" in number and "'plum'" in unknown and "a, b, c" in unknown


TABLE = """
const [text, classes] = given, target = { elements: 1, type: "i32", limit: classes };
try {
  const { names, rows } = page.rowsOf(text, 2, target);
  print({ names, x: rows.map(({ x }) => [...x]), y: rows.map(({ y }) => y[0]) });
} catch (error) { print(error.message); }
"""


@pytest.mark.parametrize(
    "text",
    [
        "1,2,3.0\n4,5,7.0\n", "1,2,03\n4,5,+7\n", "1,2,1e0\n3,4,0\n", "0,1,label\n1,2,1\n3,4,0\n",
        "0,1,label\n1,2,pear\n3,4,apple\n", "0,1,pear\n3,4,apple\n5,6,pear\n", "1\t2\t1\n3\t4\t0",
        "a,b,kind\n.5,-1e-2,pear\n5.,2E1,apple\n",
    ],
)  # fmt: skip
def test_rows_are_those_of_csv(tmp_path, text):
    (tmp_path / "rows.csv").write_text(text)
    source = open_data(f"csv:{tmp_path / 'rows.csv'}")
    x, y = np.zeros((source.n, 2), np.float32), np.zeros(source.n, np.int32)
    source.fill(np.arange(source.n), {"x": x, "y": y})
    expected = {"names": list(source.labels or []), "x": x.tolist(), "y": y.tolist()}
    found = said(tmp_path, TABLE, [text, 8])
    assert found | {"x": np.float32(found["x"]).tolist()} == expected


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("1,2,3\n4,5,pear\n", "pear"), ("1,2,pear\n3,4,5\n", "pear"), ("0x10,2,3\n4,5,6\n", "0x10"),
        ("1,2,0x1\n4,5,0\n", "0x1"), ("\t1\t0\n2\t3\t1\n", ""),
    ],
)  # fmt: skip
def test_cells_that_csv_refuses_are_refused(tmp_path, text, cell):
    (tmp_path / "rows.csv").write_text(text)
    with pytest.raises(DataError, match=f"'{cell}'"):
        open_data(f"csv:{tmp_path / 'rows.csv'}")
    assert f"'{cell}'" in said(tmp_path, TABLE, [text, 8])


DRAWN = """
const shape = [1, 8, 8], samples = given.map((one) => Float32Array.from(one));
const look = page.looks(samples, shape), line = [[[.5, .4], [.5, .6]]];
const inked = (bytes) => (_, y) => bytes[8 * y + 3] + bytes[8 * y + 4] > 60;
const rows = (bytes) => Array.from({ length: 8 }, inked(bytes));
print({ look, filled: rows(page.drawn(line, 8, 8, look)), plain: rows(page.drawn(line, 8, 8)),
  values: [...page.valuesOf(Uint8Array.from([0, 255]), [1, 2], look)],
  empty: [...page.drawn([], 8, 8, { inverted: true })].every((v) => v === 255) });
"""


def test_a_drawing_is_scaled_to_the_ink_of_the_samples(tmp_path):
    """A drawing gets the samples' mean height, and values between their darkest and brightest."""
    one = np.full((8, 8), -0.5, np.float32)
    one[1:7, 2:6] = 2.0
    found = said(tmp_path, DRAWN, [one.ravel().tolist()] * 3)
    assert found["look"] == {"low": -0.5, "high": 2, "inverted": False, "tall": 6, "wide": 4}
    assert found["filled"] == [False, *[True] * 6, False] and sum(found["plain"]) < 5
    assert found["values"] == [-0.5, 2] and found["empty"]


MIXED = """
const own = [{ x: [100], y: [1] }, { x: [101], y: [2] }];
const taken = (k, training) => ({ x: [training ? k : -k], y: [0] });
print([[0, 0], [6, 2], [100, 3]].map(([train, held]) => {
  const data = page.mixed({ train, held }, own, taken, 4), all = [];
  for (let k = 0; k < data.train; k++) {
    const x = [0], y = [0];
    data.sample(k, { set: (v) => (x[0] = v[0]) }, { set: (v) => (y[0] = v[0]) }, true);
    all.push(x[0] >= 100 ? y[0] : 0);
  }
  return [data.train, data.held, ...[1, 2].map((one) => all.filter((v) => v === one).length)];
}));
"""


def test_a_third_of_what_is_trained_on_is_ones_own(tmp_path):
    """Own samples are repeated equally often, and are at least one minibatch."""
    assert said(tmp_path, MIXED, None) == [[4, 0, 2, 2], [10, 2, 2, 2], [150, 3, 25, 25]]
