"""WebAssembly modules with tapes for all lengths, compared with training in Python."""

import json

import numpy as np
import pytest

import edgetrain as et
from edgetrain.api import bundle
from edgetrain.data.registry import open_data
from edgetrain.program.samples import elements
from edgetrain.runtime.samples.check import digest_of, lengths_digest
from tests.bundle import browser
from tests.bundle.node import checked, missing, said
from tests.bundle.test_lengths import CASES
from tests.planner import hurried
from tests.runtime.length_nets import LENGTHS, OPTIONS, model, padded, sequences

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "node is here")
QUICK = {"half"}  # most tests below train `masked`


def case(name: str) -> et.Program:
    options = {**OPTIONS, **CASES[name]}
    with hurried():
        return et.compile(
            model(options.pop("kind", "masked")), lengths=LENGTHS, verbose=False, target="wasm32",
            **options,
        )  # fmt: skip


@pytest.fixture(scope="module")
def program():
    return case("masked")


@pytest.fixture(scope="module")
def folder(program, tmp_path_factory):
    """The program's module, with a file of samples."""
    out = tmp_path_factory.mktemp("lengths")
    arrays = {
        f"{name}_{split}": array
        for split, samples in (("train", sequences()), ("test", sequences(23, 5)))
        for name, array in padded(samples).items()
    }
    np.savez(out / "data.npz", **arrays)
    bundle(program, out, data=open_data(f"npz:{out / 'data.npz'}"))
    return out


@pytest.mark.parametrize(
    "name",
    [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in CASES if n != "threads"],
)
def test_steps_have_the_bits_of_python(name, tmp_path):
    program = case(name)
    bundle(program, tmp_path)
    for steps in (1, 9):
        assert checked(tmp_path, "net", steps) == lengths_digest(program, steps)


def given(samples) -> str:
    """Return samples as JavaScript: `x`, `y` are lists of arrays; `wide`, `lengths` are padded."""
    arrays = padded(samples, LENGTHS[-1])
    values = {"x": [x.ravel().tolist() for x, _ in samples], "y": [y.tolist() for _, y in samples],
              "wide": arrays["x"].ravel().tolist(), "wideY": arrays["y"].ravel().tolist(),
              "lengths": arrays["lengths"].tolist()}  # fmt: skip
    return json.dumps(values)


RUNS = """
const typed = ({ x, y, wide, wideY, lengths }) => ({
  x: x.map((v) => Float32Array.from(v)), y: y.map((v) => Int32Array.from(v)), lengths,
  wide: Float32Array.from(wide), wideY: Int32Array.from(wideY) });
const own = typed(OWN), held = typed(HELD);
const { readFile } = await import("node:fs/promises");
const file = net.samplesOf((await readFile("FILE")).buffer.slice(0));
const masks = own.x.map(({ length }) => new Float32Array(length / 4).fill(1));
const written = (index, { x, mask }, y, training) => {
  const from = training ? own : held;
  x.set(from.x[index]);
  y.set(from.y[index]);
  if (mask.some((v, k) => v !== (k < from.lengths[index] ? 1 : 0))) throw new Error("no mask");
};
const ways = [
  { x: own.x, y: own.y, heldX: held.x, heldY: held.y },
  { x: { x: own.x, mask: masks }, y: own.y, heldX: { x: held.x }, heldY: held.y },
  { x: own.wide, y: own.wideY, lengths: own.lengths,
    heldX: held.wide, heldY: held.wideY, heldLengths: held.lengths },
  { lengths: own.lengths, heldLengths: held.lengths, sample: written },
  file,
];
const found = [];
for (const data of ways) {
  const run = await net.init({ data });
  for (let k = 0; k < STEPS; k++) run.step();
  found.push([run.digest(), run.evaluate(), run.digest()]);
}
print(found);
"""


def test_a_run_on_samples_of_any_length_has_the_bits_of_fit(folder, program):
    own, held = sequences(), sequences(23, 5)
    with et.Trainer(program, own, verbose=False, lr=program.lr) as trainer:
        trainer.fit(epochs=3)
        expected, steps = digest_of(trainer.session), trainer.session.step
        judged = trainer.evaluate(held)
    script = RUNS.replace("OWN", given(own)).replace("HELD", given(held))
    script = script.replace("STEPS", str(steps)).replace("FILE", str(folder / "net.samples"))
    for first, evaluation, last in said(folder, "net", script):
        assert int(first, 16) == int(last, 16) == expected
        assert evaluation["accuracy"] == judged["accuracy"]
        assert evaluation["loss"] == pytest.approx(judged["loss"], rel=1e-12)


PREDICTIONS = """
const run = await net.init({ data: net.madeUp() });
run.step();
const wave = (length, from) =>
  Float32Array.from({ length: 4 * length }, (_, k) => Math.sin(k + from));
const x = [12, 3, 7, 1, 7].map(wave), mask = Float32Array.of(1, 1, 1, 0, 0);
run.step();
print({ list: run.predict(x).map((v) => [...v]), named: run.predict({ x }).map((v) => [...v]),
  alone: x.map((v) => [...run.predict(v)]), masked: [...run.predict({ x: wave(5, 0), mask })],
  rows: [...run.predict(wave(10, 2), 5)], held: run.step().step, none: run.predict([]) });
"""


def test_predictions_are_as_long_as_their_samples(folder):
    found = said(folder, "net", PREDICTIONS)
    assert found["list"] == found["named"] == found["alone"] and found["held"] == 3
    assert found["none"] == []
    assert [len(one) for one in found["list"]] == [3 * n for n in (12, 3, 7, 1, 7)]
    assert len(found["rows"]) == 2 * 5 * 3 and len(found["masked"]) == 5 * 3


UNTRAINED = """
const run = await net.init(), x = X.map((v) => Float32Array.from(v));
const rows = Float32Array.from(X.slice(0, 2).flat());
print([run.predict(x).map((v) => [...v]), [...run.predict(rows, 5)]]);
"""


def test_predictions_of_initial_weights_have_pythons_bits(folder, program):
    draw = np.random.default_rng(3)
    x = [draw.standard_normal((n, 4)).astype(np.float32) for n in (5, 5, 12, 3, 7, 1)]
    text = json.dumps([one.ravel().tolist() for one in x])
    each, rows = said(folder, "net", UNTRAINED.replace("X.", f"{text}."))
    with et.Trainer(program, verbose=False) as trainer:
        for one, found in zip(x, each, strict=True):
            np.testing.assert_array_equal(np.float32(found), trainer.predict(one).ravel())
    assert rows == each[0] + each[1]


STATES = """
const data = net.madeUp(), run = await net.init({ data });
run.split(3);
const lengths = new Set(), digests = [];
const watched = (index, x, y, training) => {
  lengths.add(y.length);
  data.sample(index, x, y, training);
};
run.data({ ...data, sample: watched });
let state, busy = 0;
while (run.progress.step < 9) {
  const done = run.poll(), { step } = run.progress;
  if (!done && step === 2) try { run.predict(new Float32Array(8)); } catch (e) { busy = e.code; }
  if (done && step === 5) state = run.save();
}
const other = await net.init({ data, wasm: run.module });
other.predict(new Float32Array(4));
const taken = other.load(state), before = other.progress.step;
other.predict(new Float32Array(28));
const weight = other.get("w1");
other.set("w1", weight);
while (other.progress.step < 9) other.step();
const sizes = [...lengths].sort((a, b) => a - b);
print([taken, before, sizes, busy, run.digest(), other.digest(), run.arena.length]);
"""


def test_a_state_saved_at_one_length_goes_on_at_others(folder, program):
    taken, step, lengths, busy, *digests, arena = said(folder, "net", STATES)
    assert taken and step == 5 and busy == -2 and lengths == [*LENGTHS]
    assert {int(digest, 16) for digest in digests} == {lengths_digest(program, 9)}
    assert arena == program.arena_nbytes


FAULTS = """
const run = await net.init(), said = [];
const wave = (n) => new Float32Array(4 * n), y = (n) => new Int32Array(n);
const own = () => { throw new Error("mine"); };
const tried = (work) => { try { work(); said.push(""); } catch (e) { said.push(e.message); } };
tried(() => run.step());
tried(() => run.data({ x: [wave(13)], y: [y(13)] }));
tried(() => run.data({ x: [new Float32Array(7)], y: [y(2)] }));
tried(() => run.data({ x: [wave(3), wave(4)], y: [y(3)] }));
tried(() => run.data({ x: [wave(3)], y: [y(3)], lengths: [0] }));
tried(() => run.data({ x: { mask: [y(3)] }, y: [y(3)] }));
tried(() => run.data({ train: [-1, 0, 0], sample: () => {} }));
tried(() => { run.data({ train: [7, 7, 7], sample: () => {} }); run.step(); });
tried(() => { run.data({ train: [8], sample: own }); run.step(); });
tried(() => run.predict(wave(13)));
tried(() => run.data({ x: [wave(3)], y: [Float32Array.of(0, 1, .5)] }));
tried(() => net.samplesOf(new ArrayBuffer(40)));
print(said);
"""


def test_faults_are_said(folder):
    none, long, values, count, zero, name, minus, few, own, longer, half, file = said(
        folder, "net", FAULTS
    )
    assert "no data" in none and "13" in long and "T=12" in long
    assert "7 values" in values and "4 for each of T" in values
    assert "target" in count and "2" in count and "length 0" in zero and "x:" in name
    assert "out of range" in minus and "no data" in few and own == "mine"
    assert "loss.target: 0.5; expected 32-bit integers" in half
    assert "13" in longer and "T=4, 7, 12" in file


TARGETS = """
const run = await net.init();
const x = [new Float32Array(16)], filled = (n, rest) => [new Int32Array(n).fill(1).fill(rest, 4)];
const tried = (work) => { try { work(); return ""; } catch (error) { return error.message; } };
print([filled(7, 1), filled(7, IGNORED), filled(3, 1)].map((y) => tried(() => run.data({ x, y }))));
"""


def test_targets_are_as_long_as_their_sample_or_ignored_after_it(folder, program):
    script = TARGETS.replace("IGNORED", str(program.ignored_of("loss.target")))
    long, ignored, short = said(folder, "net", script)
    assert "targets for more than the sample's 4 positions" in long and ignored == ""
    assert "targets for 3 positions; expected 4" in short


BYTES = """
const scale = { factor: .01, shift: -1 }, y = new Int32Array(12);
const scaled = (v) => Math.fround(Math.fround(v * Math.fround(.01)) - 1);
const floats = (x) => Float32Array.from(x, scaled);
const x = [12, 5, 3].map((n) => KIND.from({ length: 4 * n }, (_, k) => (37 * k) % 256));
const run = await net.init({ data: { x: [x[0]], y: [y], ...scale } });
const lists = (some) => run.predict(some).map((v) => [...v]);
print([lists(x), lists(x.map(floats)), [...run.predict(x[1])], [...run.predict(floats(x[1]))]]);
"""


@pytest.mark.parametrize("kind", ["Uint8Array", "Uint8ClampedArray"])
def test_bytes_are_scaled_for_predictions_as_for_training(folder, kind):
    of_bytes, of_floats, one_of_bytes, one_of_floats = said(
        folder, "net", BYTES.replace("KIND", kind)
    )
    assert of_bytes == of_floats and one_of_bytes == one_of_floats == of_bytes[1]


REFUSED = """
const run = await net.init(), sample = () => {};
const x = [new Float32Array(16)], y = [new Int32Array(4)];
const tried = (work) => { try { work(); return ""; } catch (error) { return error.message; } };
print([
  tried(() => { run.data({ train: [8], sample: async () => {} }); run.step(); }),
  tried(() => { run.data({ lengths: Array(8).fill(3), sample: async () => {} }); run.step(); }),
  tried(() => run.data({ x, y, factor: .01 })),
  tried(() => run.data({ train: [8], sample, shift: 1 })),
  tried(() => run.data({ x: { x: [new Uint8Array(16), ...x] }, y: [...y, ...y], factor: .01 })),
]);
"""


def test_a_callback_is_synchronous_and_a_factor_is_for_bytes(folder):
    later, by_length, floats, callback, some_bytes = said(folder, "net", REFUSED)
    assert "asynchronous" in later and "asynchronous" in by_length
    assert "for bytes" in floats and "for bytes" in callback
    assert some_bytes == ""


def test_padding_that_a_loss_would_count_is_refused(tmp_path):
    with hurried():
        program = et.compile(
            model("alone"), lengths=LENGTHS, loss="mse", verbose=False, target="wasm32", **OPTIONS
        )
    bundle(program, tmp_path)
    script = """
    const run = await net.init(), said = [];
    for (const n of [5, 7]) try {
      run.data({ x: [new Float32Array(4 * n)], y: [new Float32Array(3 * n)] });
      said.push("");
    } catch (error) { said.push(error.message); }
    print(said);
    """
    counted, exact = said(tmp_path, "net", script)
    assert "length 5" in counted and "T=4, 7, 12" in counted and exact == ""


def test_files_say_what_the_lengths_take(folder, program):
    manifest = json.loads((folder / "MANIFEST.json").read_text())
    assert [one["length"] for one in manifest["lengths"]["sets"]] == [*LENGTHS]
    assert manifest["tapes"]["left_out"] == []
    assert manifest["ram_nbytes"]["arena"] == program.arena_nbytes
    found = said(folder, "net", "print([net.facts, (await net.init()).memoryBytes]);")
    facts, memory = found[0]["lengths"], found[1]
    assert memory == manifest["module_nbytes"]["memory"]
    assert facts["name"] == "T" and [one["length"] for one in facts["sets"]] == [*LENGTHS]
    assert facts["sets"][0]["shapes"] == [[4, 4], [4], [4]]
    assert facts["sets"][2]["output"] == [12, 3] and facts["cut"] == [0]
    assert found[0]["target"]["elements"] == elements(program, program.targets["micro"])
    types = (folder / "net.d.ts").read_text()
    assert "lengths: Lengths;" in types and "heldLengths" in types


@pytest.mark.skipif(bool(browser.missing()), reason=browser.missing() or "Chromium is here")
@pytest.mark.slow
def test_the_page_trains_on_a_file_of_all_lengths(folder, program, tmp_path):
    with browser.served(folder) as address, browser.tab(tmp_path / "profile") as page:
        page.open(f"{address}/index.html?steps=12")
        end = page.waited(lambda facts: facts.get("step") == "12" and "digest" in facts)
        assert page.waited(lambda facts: "bits" in facts)["bits"] == "true"
        why = page.run("return document.getElementById('why').textContent")
        assert "T=4, 7, 12" in why
        with et.Trainer(program, sequences(), verbose=False, lr=program.lr) as trainer:
            trainer.fit(steps=12)
            assert int(end["digest"], 16) == digest_of(trainer.session)
            judged = trainer.evaluate(sequences(23, 5))
        assert float(end["accuracy"]) == judged["accuracy"]
        page.open(f"{address}/index.html?steps=20")
        page.waited(lambda facts: facts.get("step") == "20" and "digest" in facts)
