"""WebAssembly bundles in Node.js: the same bits as Python, and their JavaScript API."""

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import edgetrain as et
from device_tests import kinds
from edgetrain.api import bundle
from edgetrain.bundle import module, names
from edgetrain.bundle.names import TEMPLATES
from edgetrain.bundle.writing import of_length
from edgetrain.cli.commands.bundle import name_of
from edgetrain.errors import UsageError
from edgetrain.kernels import targets
from edgetrain.kernels.emission import objects
from edgetrain.kernels.linking import reading
from edgetrain.optim import SCHEDULES, Schedule
from edgetrain.runtime.samples.check import MINIBATCHES, checked_run, made_up_filler
from edgetrain.runtime.session import Session
from edgetrain.units.plugin import option
from tests.bundle.node import checked, missing, said
from tests.digits_runs import MODEL
from tests.fuzz import nets
from tests.optim.cases import OPTIMIZER_CASES
from tests.program import sets

NEEDS = pytest.mark.skipif(bool(missing()), reason=missing() or "node is here")
WASM = targets.TARGETS["wasm32"]
_SCRIPTS = "net.js", "net_lengths.js"


@pytest.fixture
def program(module_program):
    return module_program


@pytest.fixture
def folder(module_folder):
    return module_folder


@pytest.fixture(scope="module")
def plain(two_layers, tmp_path_factory):
    """The module of the small net in fp32, whose byte samples have 6 bytes."""
    if missing():
        pytest.skip(missing())
    out = tmp_path_factory.mktemp("plain")
    optimizer = et.SGD(lr=0.1)
    program = et.compile(
        two_layers, optimizer=optimizer, minibatch=8, microbatch=4, target="wasm32"
    )
    bundle(program, out, name="plain")
    return out


def test_an_object_says_what_it_lacks_and_holds():
    text = (
        'declare i32 @lent(i32) "wasm-import-module"="env" "wasm-import-name"="lent"\n'
        "@table = hidden constant [100 x i8] zeroinitializer, align 64\n"
        "define i32 @own(i32 %x) {\n  %y = call i32 @lent(i32 %x)\n  ret i32 %y\n}\n"
    )
    code = objects.emit_object(text, WASM, objects.DATA)
    assert reading.undefined(code) == {"lent"}
    assert reading.sections(code)[".text"] > 0
    data = bytes(range(100))
    assert data in reading.filled(code, ".rodata", data)


def test_wasm_has_separate_arithmetic_unless_asked_otherwise(two_layers):
    given = {"minibatch": 8, "microbatch": 4, "target": "wasm32"}
    assert et.compile(two_layers, **given).recipe["arithmetic"] == "separate"
    assert "arithmetic" not in et.compile(two_layers, arithmetic="fused", **given).recipe


def test_a_missing_linker_is_said_first(program, tmp_path, monkeypatch):
    monkeypatch.setattr(module.shutil, "which", lambda name: None)
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="target wasm32: no linker for WebAssembly"):
        bundle(program, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_module_takes_names_that_c_does_not(program, tmp_path):
    if missing():
        pytest.skip(missing())
    manifest = bundle(program, tmp_path, name="time")
    assert (
        said(tmp_path, "time", "print((await net.check()).digest);") == manifest["check"]["digest"]
    )
    with pytest.raises(UsageError, match="name 'Time': expected a letter"):
        bundle(program, tmp_path / "out", name="Time")


@pytest.mark.parametrize(
    "file", ["Über v2.edge", f"{'a' * 30}_b.edge", "9.edge", "--.edge", "time.edge"]
)
def test_every_file_name_gives_a_name(file):
    names.check_name(name_of(file))


def test_the_digest_is_pythons(folder, program):
    assert checked(folder, "small", 20) == checked_run(program, 20).digest
    spiked = checked_run(program, 20, 65000.0)
    assert checked(folder, "small", 20, 65000.0) == spiked.digest and spiked.skipped


def test_files_and_manifest(folder):
    manifest = json.loads((folder / "MANIFEST.json").read_text())
    names = {path.name for path in folder.iterdir()}
    assert names >= {"small.wasm", "small.js", "small.d.ts", "package.json", "MANIFEST.json"}
    assert manifest["target"]["name"] == "wasm32"
    memory = manifest["module_nbytes"]["memory"]
    assert memory % 65536 == 0 and memory >= manifest["ram_nbytes"]["arena"]
    found = said(folder, "small", "print((await net.init()).memoryBytes);")
    assert found == memory
    checked_there = said(folder, "small", "print(await net.check());")
    assert checked_there["digest"] == checked_there["expected"] == manifest["check"]["digest"]


@pytest.mark.parametrize("several", [False, True])
def test_types_name_every_schedule_of_bundles_and_the_fields_of_new_ones(several, request):
    request.addfinalizer(lambda: SCHEDULES.pop("fading"))

    @dataclass(frozen=True)
    class Fading(Schedule):
        name: ClassVar[str] = "fading"
        every: int = option(1, "steps of a stage", "N", least=1, most=9)
        floors: float = option(0.1, "a floor; per stage", "F")
        start: float = option(0.1, "the start", "F")
        low: float = option(0.1, "the last rate", "F")

    types = module._types(several)
    union = re.search(r"kind\?: ([^;]*);", types)
    named = {kind.name for kind in SCHEDULES.values() if kind.in_bundles()}
    assert union and re.findall(r'"(\w+)"', union[1]) == [n for n in SCHEDULES if n in named]
    said = "size: steps of a stage, gamma: a floor, per stage, threshold: the start, minLr: the "
    assert f"fading: {said}" in types and "polynomial: size: exponent, gamma: " in types


def test_modules_of_one_length_hold_no_code_of_several(folder):
    """Each part for several lengths replaces the part for one length."""
    parts = [dict(module._PART.findall((TEMPLATES / f).read_text())) for f in _SCRIPTS]
    assert parts[0].keys() == parts[1].keys()
    one, several = module._script(False), module._script(True)
    for name, own in parts[0].items():
        assert own in one and own not in several and parts[1][name] in several
    assert "NET.lengths" not in (folder / "small.js").read_text()


STATES = """
const run = await net.init({ data: net.madeUp() });
for (let k = 0; k < 3; k++) run.step();
const state = run.save(), before = run.digest();
for (let k = 0; k < 3; k++) run.step();
const after = run.digest();
const other = await net.init({ data: net.madeUp(), wasm: run.module });
const taken = other.load(state), same = other.digest() === before;
for (let k = 0; k < 3; k++) other.step();
state[100] ^= 1;
let pieces = 0;
other.split(8);
for (const end = other.progress.step + 1; other.progress.step < end; pieces++) other.poll();
print([taken, same, other.progress.step, other.load(state), other.load(state.slice(1)),
       run.step().step, other.digest() === run.digest(), after !== before, pieces > 1]);
"""


def test_a_state_goes_through_bytes_and_a_damaged_one_is_refused(folder):
    assert said(folder, "small", STATES) == [True, True, 7, False, False, 7, True, True, True]


VALUES = """
const run = await net.init({ data: net.madeUp() });
for (let k = 0; k < 4; k++) run.step();
const x = new Float32Array(9 * 6);
for (let k = 0; k < x.length; k++) x[k] = Math.sin(k);
const weight = run.get("one.w"), out = run.predict(x);
run.set("two.b", new Float32Array([1, 2, 4]));
const shifted = run.predict(x);
print({ names: run.parameters, weight: [...weight], out: [...out], bias: [...run.get("two.b")],
        x: [...x], shifted: [...shifted], held: run.arena.length });
"""


def test_values_and_predictions_are_pythons(folder, program):
    found = said(folder, "small", VALUES)
    wanted = _trained(program, 4)
    shapes = {value["name"]: tuple(value["shape"]) for value in found["names"]}
    assert shapes == {name: wanted[name].shape for name in shapes} and len(shapes) == 4
    np.testing.assert_array_equal(np.float32(found["weight"]), wanted["one.w"].ravel())
    assert found["bias"] == [1, 2, 4] and found["held"] == program.arena_nbytes
    x = np.float32(found["x"]).reshape(-1, 6)
    hidden = np.maximum(x @ wanted["one.w"].T + wanted["one.b"], 0)
    out = hidden @ wanted["two.w"].T
    got = [np.reshape(found[name], (-1, 3)) for name in ("out", "shifted")]
    # fp16 activations: three digits
    np.testing.assert_allclose(got[0], out + wanted["two.b"], atol=5e-3)
    np.testing.assert_allclose(got[1], out + [1, 2, 4], atol=5e-3)


def _trained(program, steps):
    """Return the parameters as float32 after some steps on made-up samples."""
    session = Session(program)
    try:
        session.set_schedule(Schedule(), steps)
        filler = made_up_filler(session)
        for _ in range(steps):
            session.minibatch(MINIBATCHES * program.minibatch, filler)
        return {name: np.float32(array) for name, array in session.state().items()}
    finally:
        session.close()


ARRAYS = """
const count = 32, x = new Float32Array(count * 6), y = new Int32Array(count);
const { sample } = net.madeUp(count);
for (let k = 0; k < count; k++) {
  const one = new Float32Array(6), label = new Int32Array(1);
  sample(k, one, label);
  x.set(one, 6 * k);
  y.set(label, k);
}
const digests = [];
for (const data of [{ train: count, held: count, sample }, { x, y, heldX: x, heldY: y }]) {
  const run = await net.init({ data });
  for (let k = 0; k < 5; k++) run.step();
  digests.push([run.digest(), run.evaluate()]);
}
const bytes = Uint8Array.from(x, (v) => Math.round(100 * v + 100)), ours = [];
const floats = Float32Array.from(bytes, (v) => Math.fround(Math.fround(v * Math.fround(.01)) - 1));
for (const data of [{ x: bytes, y, factor: .01, shift: -1 }, { x: floats, y }]) {
  const run = await net.init({ data });
  for (let k = 0; k < 5; k++) run.step();
  ours.push(run.digest(), [...run.predict(floats)].join(), [...run.predict(data.x)].join());
}
print({ digests, same: new Set(ours).size });
"""


def test_samples_come_by_callback_and_from_arrays(folder):
    found = said(folder, "small", ARRAYS)
    assert found["digests"][0] == found["digests"][1] and found["same"] == 2


FAULTS = """
const run = await net.init(), said = [];
const tried = (work) => { try { work(); said.push(""); } catch (e) { said.push(e.message); } };
tried(() => run.step());
run.data({ train: 16, sample: () => { throw new Error("mine"); } });
tried(() => run.step());
run.data({ train: 16, sample: (index, x) => { x[0] = NaN; } });
tried(() => run.step());
run.data(net.madeUp());
tried(() => run.step());
tried(() => run.get("three.w"));
tried(() => run.set("two.b", [1]));
tried(() => run.predict(new Float32Array(7)));
tried(() => run.schedule({ kind: "sideways" }));
print(said);
"""


def test_faults_are_said(folder):
    no_data, own, nan, good, name, size, values, schedule = said(folder, "small", FAULTS)
    assert "no data" in no_data and own == "mine" and "not finite" in nan and good == ""
    assert "three.w" in name and "1 values; expected 3" in size and "7 values" in values
    assert "sideways" in schedule


BYTES = """
const y = Int32Array.from({ length: 8 }, (_, k) => k % 3), scale = { factor: .01, shift: -1 };
const bytes = KIND.from({ length: 8 * 6 }, (_, k) => (37 * k) % 256);
const floats = Float32Array.from(bytes, (v) => Math.fround(Math.fround(v * Math.fround(.01)) - 1));
const file = (type, x) => {
  const size = 6 * x.BYTES_PER_ELEMENT, width = size + 4, all = new Uint8Array(32 + 16 * width);
  const view = new DataView(all.buffer);
  [0x4d534445, 8, 8, type, 0, 0, width].forEach((v, k) => view.setUint32(4 * k, v, true));
  [.01, -1].forEach((v, k) => view.setFloat32(16 + 4 * k, v, true));
  for (let k = 0; k < 16; k++) {
    all.set(new Uint8Array(x.buffer, k % 8 * size, size), 32 + k * width);
    view.setInt32(32 + k * width + size, y[k % 8], true);
  }
  return net.samplesOf(all.buffer);
};
const arrays = (x) => ({ x, y, heldX: x, heldY: y }), ways = WAYS, found = [];
for (const data of ways) {
  const run = await net.init({ data });
  for (let k = 0; k < 3; k++) run.step();
  found.push([run.digest(), run.evaluate(), [...run.predict(floats)]]);
  if (data.factor) found.push([run.digest(), run.evaluate(), [...run.predict(bytes)]]);
}
print(found);
"""


@pytest.mark.parametrize("kind", ["Uint8Array", "Uint8ClampedArray"])
def test_samples_of_six_bytes_have_the_results_of_floats(plain, kind):
    script = BYTES.replace("KIND", kind)
    ways = "[{ ...arrays(bytes), ...scale }, arrays(floats)]"
    first, *others = said(plain, "plain", script.replace("WAYS", ways))
    assert others == [first] * 2


def test_a_file_of_bytes_or_floats_has_the_results_of_arrays(plain):
    script = BYTES.replace("KIND", "Uint8Array")
    ways = "[arrays(floats), file(0, floats), file(4, bytes)]"
    first, *others = said(plain, "plain", script.replace("WAYS", ways))
    assert others == [first] * 3


OTHERS = """
print([[0, 28], [0, 24], [4, 10], [4, 9]].map(([type, width]) => {
  const view = new DataView(new ArrayBuffer(32 + 8 * width));
  [0x4d534445, 8, 0, type, 0, 0, width].forEach((v, k) => view.setUint32(4 * k, v, true));
  try { return net.samplesOf(view.buffer).train ?? 8; } catch (error) { return error.message; }
}));
"""


def test_a_file_with_samples_of_another_network_is_refused(plain):
    floats, short_floats, small, short_small = said(plain, "plain", OTHERS)
    assert floats == small == 8
    assert "another network" in short_floats and "another network" in short_small


CALLS = """
const x = new Float32Array(48).fill(.5), y = new Int32Array(8), sample = () => {};
const bytes = new Uint8Array(48), run = await net.init({ data: { x, y } });
try { CALL; print(""); } catch (error) { print(error.message); }
"""


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("run.data({ x, y, heldX: bytes, heldY: y })", "same type"),
        ("run.data({ x: bytes, y, heldX: x, heldY: y })", "same type"),
        ("run.data({ x, y, heldX: x })", "typed arrays"),
        ("run.data({ x, y, factor: 1 / 255 })", "for bytes"),
        ("run.data({ train: 8, sample, shift: -.5 })", "for bytes"),
        ("run.data({ x: [...x], y: [...y] })", "typed arrays"),
        ("run.data({ sample })", "train: undefined"),
        ("run.data({ train: 2 ** 31, sample })", "train: 2147483648; expected 32-bit integers"),
        ("run.data({ train: 2 ** 32 + 8, sample })", "train: 4294967304"),
        ("run.data({ train: 8, held: 1.5, sample })", "held: 1.5"),
        ("run.data({ train: 8, held: 2 ** 40, sample })", "held: 1099511627776"),
        ("run.split(1.5)", "split: 1.5"),
        ("run.split(2 ** 32 + 1)", "split: 4294967297"),
        (
            "run.data({ x, y: Float32Array.from(y, () => 2.5) })",
            "loss.target: 2.5; expected 32-bit",
        ),
        ("run.data({ x, y: Float32Array.from(y, () => NaN) })", "loss.target: NaN"),
        ("run.data({ x, y, heldX: x, heldY: new Uint32Array(8).fill(2 ** 31) })", "2147483648"),
        ("run.predict({ y })", "input x: undefined values"),
        ("run.predict([1, 2])", "input x: 2 values for 1 samples; expected 6 per sample"),
        ("run.data({ train: 8, sample: async () => {} }); run.step()", "asynchronous"),
        ("run.skip()", "fused updates"),
    ],
)
def test_calls_that_cannot_be_name_the_reason(plain, call, words):
    assert words in said(plain, "plain", CALLS.replace("CALL", call))


PLAIN = """
const run = await net.init(), x = [1, 2, 3, 4, 5, 6].map((v) => v / 8);
print([Float32Array.from(x), x, { x }].map((one) => [...run.predict(one)]));
"""


def test_predict_takes_arrays_of_numbers(plain):
    typed, *others = said(plain, "plain", PLAIN)
    assert len(typed) == 3 and others == [typed] * 2


WITHIN = """
const run = await net.init(), { sample } = net.madeUp(8), data = { train: 8, held: 8, sample };
const state = run.save(), weight = run.get("one.w"), codes = [];
for (const call of [() => run.step(), () => run.poll(), () => run.evaluate(), () => run.save(),
  () => run.predict(new Float32Array(6)), () => run.data(data), () => run.schedule(),
  () => run.split(2), () => run.get("one.w"), () => run.set("one.w", weight),
  () => run.load(state)])
  for (const outer of ["step", "evaluate"]) {
    run.data({ ...data, sample: (...given) => { call(); return sample(...given); } });
    try { run[outer](); codes.push(0); } catch (error) { codes.push(error.code); }
  }
const same = run.digest();
run.data({ ...data, sample: (...given) => { sample(...given, run.progress, run.digest()); } });
const other = await net.init({ data });
print([codes, same === other.digest(), run.step().loss === other.step().loss]);
"""


def test_a_sample_callback_cannot_use_the_network(plain):
    codes, same, equal = said(plain, "plain", WITHIN)
    assert codes == [-2] * 22 and same and equal


COUNTS = """
const fill = () => 0, env = { fill, erase: fill, write: fill, read: fill };
const { exports: c } = await WebAssembly.instantiate((await net.init()).module, { env });
const run = c.net_start(), links = new DataView(c.memory.buffer, c.net_links.value);
const own = links.getUint32(16, true);
const counts = [2n ** 31n - 1n, 2n ** 31n, 2n ** 32n + 8n, 2n ** 40n, -1n];
print([counts.map((n) => c.net_data(run, own, 0, n, 0n)),
  counts.map((n) => c.net_data(run, own, 0, 8n, n)),
  counts.slice(1).map((n) => c.net_predict(run, 0, n, 0))]);
"""


def test_counts_beyond_32_bits_are_refused(plain):
    """Kernels of processors with 32-bit addresses get 32 bits of a count."""
    train, held, predicted = said(plain, "plain", COUNTS)
    assert train == held == [0, -5, -5, -5, -5] and predicted == [-5] * 4


RATES = """
try {
  const run = await net.init({ data: net.madeUp(), schedule: GIVEN });
  print(Array.from({ length: 4 }, () => run.step().lr));
} catch (error) { print(error.message); }
"""


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"kind": "cosine"}, "totalSteps"),
        ({"kind": "polynomial", "size": 1}, "totalSteps"),
        ({"kind": "one_cycle", "rise": 0.3, "first": 0.04, "last": 1e-4}, "totalSteps"),
        ({"kind": "cosine", "total_steps": 4}, "unknown total_steps"),
        ({"kind": "cosine", "totalSteps": 2**31}, "totalSteps"),
        ({"kind": "cosine", "totalSteps": 1.5}, "schedule totalSteps: 1.5; expected an integer"),
        ({"kind": "multistep", "drops": [2, "4"]}, "schedule drops[1]: 4; expected an integer"),
        ({"kind": "multistep", "drops": 5}, "schedule drops: 5; expected a list of integers"),
        ({"lr": "0.1"}, "schedule lr: 0.1; expected a number"),
        ({"lr": None}, "schedule lr: null; expected a number"),
    ],
)
def test_schedules_with_a_bad_option_are_refused(plain, given, words):
    assert words in said(plain, "plain", RATES.replace("GIVEN", json.dumps(given)))


@pytest.mark.parametrize("more", [{}, {"size": 1}])
def test_a_multistep_schedule_takes_all_its_drops(plain, more):
    given = json.dumps({"kind": "multistep", "lr": 0.5, "drops": [1, 3], "gamma": 0.5, **more})
    assert said(plain, "plain", RATES.replace("GIVEN", given)) == [0.5, 0.25, 0.25, 0.125]


@pytest.mark.skipif(not shutil.which("npm"), reason="npm not installed")
def test_npm_packs_it(folder):
    command = ["npm", "pack", "--dry-run", "--json", "--offline"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    packed = {file["path"] for file in json.loads(done.stdout)[0]["files"]}
    assert packed >= {"small.wasm", "small.js", "small.d.ts", "package.json"}


def test_a_program_in_fused_arithmetic_has_pythons_bits_too(two_layers, tmp_path):
    """WebAssembly has no such instruction, so our own functions are used."""
    if missing():
        pytest.skip(missing())
    program = et.compile(
        two_layers, minibatch=8, microbatch=8, target="wasm32", arithmetic="fused",
        optimizer=et.SGD(lr=0.05, momentum=0.9),
    )  # fmt: skip
    bundle(program, tmp_path)
    assert checked(tmp_path, "net", 10) == checked_run(program, 10).digest


@NEEDS
@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "most"), [({"precision": "fp16"}, 53_000), ({"budget": "110KiB"}, 60_000)]
)
def test_the_digits_take_192_kib_and_a_small_download(options, most, tmp_path):
    """192 KiB includes everything: constants, initial weights, stack and arena."""
    program = et.compile(
        et.load_onnx(MODEL), target="wasm32", minibatch=32, **options,
        optimizer=et.SGD(lr=0.03, momentum=0.9, nesterov=True, weight_decay=5e-4),
    )  # fmt: skip
    made = bundle(program, tmp_path)
    assert made["module_nbytes"]["memory"] == 192 * 1024
    assert made["module_nbytes"]["gzipped"] < most


def test_regions_are_the_persistent_slots_by_role():
    program = et.compile(et.load_onnx(MODEL), target="wasm32", minibatch=32, precision="fp16")
    found = {}
    for role, parts in module._regions(program).items():
        for offset, length in zip(parts[::2], parts[1::2], strict=True):
            found |= dict.fromkeys(range(offset, offset + length), role)
    expected = {}
    for slot in program.persistent:
        expected |= dict.fromkeys(
            range(slot.offset // 64, (slot.offset + slot.nbytes + 63) // 64), slot.role
        )
    assert found == expected


QUICK = {"quantised"}


@NEEDS
@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in nets.NETS]
)
def test_a_small_net_has_pythons_bits(name, tmp_path):
    """Together these nets use every kernel that a tape may contain."""
    program = nets.compiled(name, target="wasm32", threads=1)
    bundle(program, tmp_path)
    assert checked(tmp_path, "net", 4) == checked_run(program, 4).digest


@NEEDS
@pytest.mark.slow
@pytest.mark.parametrize("kind", kinds.EVERY)
def test_a_net_of_the_zoo_has_pythons_bits(kind, tmp_path):
    """Every family of the zoo, bidirectional recurrences, and nets with other compile options."""
    storage = "" if kind in kinds.KINDS else "fp32"
    program, run = kinds.program(kind, "wasm32", storage, 3)
    bundle(program, tmp_path)
    assert checked(tmp_path, "net", 3, kinds.spike_of(kind, storage)) == run.digest


# Other options for nets compiled in fp32: storage formats, all optimizers, other steps.
_STORED = {
    "fp16": {"precision": "fp16"},
    "bf16": {"precision": "bf16"},
    "int8 memory": {"precision": "fp16", "model_memory": "int8"},
    "saved int8": {"saved": "int8"},
    "fused": {"arithmetic": "fused"},
}
_SMALL = "residual", "quantised", "lstm", "attention", "norms"
_NOTHING_TO_PACK = "quantised", "lstm"  # they save no value of 64 elements or more for backward


@NEEDS
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "how"),
    [
        (name, how)
        for name in _SMALL
        for how in _STORED
        if how != "saved int8" or name not in _NOTHING_TO_PACK
    ],
)
def test_a_small_net_has_pythons_bits_however_it_is_stored(name, how, tmp_path):
    program = nets.compiled(name, target="wasm32", threads=1, **_STORED[how])
    bundle(program, tmp_path)
    assert checked(tmp_path, "net", 4) == checked_run(program, 4).digest


@NEEDS
@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("made", OPTIMIZER_CASES.values(), ids=list(OPTIMIZER_CASES))
def test_every_optimizer_has_pythons_bits(made, precision, tmp_path):
    program = nets.compiled("mlp", target="wasm32", threads=1, precision=precision, optimizer=made)
    bundle(program, tmp_path)
    assert checked(tmp_path, "net", 4) == checked_run(program, 4).digest


@NEEDS
@pytest.mark.slow
def test_each_length_has_pythons_bits(tmp_path):
    given = {**sets.OPTIONS, "lengths": {"T": list(sets.LENGTHS)}, "target": "wasm32"}
    program = et.compile(sets.sequences(), **given)
    assert tuple(sorted(program.lengths, reverse=True)) == sets.LENGTHS
    for length in program.lengths:
        bundle(program, tmp_path / str(length), length=length)
        wanted = checked_run(of_length(program, length), 4).digest
        assert checked(tmp_path / str(length), "net", 4) == wanted


SEVERAL = """
const n = 8, x = new Float32Array(n * 5), box = new Float32Array(n * 3), y = new Int32Array(n);
for (let k = 0; k < x.length; k++) x[k] = Math.sin(k);
for (let k = 0; k < box.length; k++) box[k] = Math.cos(k);
for (let k = 0; k < n; k++) y[k] = k % 4;
const data = { x: { x, box }, y, heldX: { x, box }, heldY: y };
const run = await net.init({ data });
for (let k = 0; k < 3; k++) run.step();
const found = run.evaluate();
run.set("loss.weights", new Float32Array([1, 0]));
print({ ...found, off: run.evaluate().loss, checked: await net.check() });
"""


@NEEDS
def test_several_losses_are_evaluated_each_by_name(tmp_path):
    from tests.losses.test_several import LOSSES, two_heads

    program = et.compile(
        two_heads().model("class", "box"), losses=LOSSES, minibatch=8, target="wasm32",
        optimizer=et.SGD(lr=0.1),
    )  # fmt: skip
    bundle(program, tmp_path, name="two")
    found = said(tmp_path, "two", SEVERAL)
    assert found["checked"]["digest"] == found["checked"]["expected"]
    x, box = np.sin(np.arange(40)), np.cos(np.arange(24))
    data = {"x": x.reshape(8, 5).astype(np.float32), "box": box.reshape(8, 3).astype(np.float32)}
    data["class"] = np.arange(8) % 4
    with et.Trainer(program, data) as trainer:
        for _ in range(3):
            trainer.step(data["x"], {name: data[name] for name in ("class", "box")})
        expected = trainer.evaluate(data)
    assert [one["output"] for one in found["losses"]] == ["class", "box"]
    assert [one["label"] for one in found["losses"]] == ["class", "box"]
    rights = [one.get("accuracy") for one in found["losses"]]
    assert rights == [expected["class_accuracy"], None]
    assert [one["loss"] for one in found["losses"]] == pytest.approx(
        [expected["class_loss"], expected["box_loss"]], rel=1e-6
    )
    assert found["loss"] == pytest.approx(expected["loss"], rel=1e-6)
    assert found["off"] == pytest.approx(expected["class_loss"], rel=1e-6)
