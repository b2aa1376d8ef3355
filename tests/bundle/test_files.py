"""The files of a bundle: compilers accept them, tools agree, and invalid requests are refused."""

import json
import shutil
import struct
import subprocess

import numpy as np
import pytest

import edgetrain as et
from edgetrain.api import bundle
from edgetrain.bundle import texts
from edgetrain.bundle.archive import archive
from edgetrain.bundle.writing import image_for, of_length
from edgetrain.cli import main
from edgetrain.errors import UsageError
from edgetrain.kernels.targets import TARGETS
from edgetrain.runtime.samples.check import state_digest
from edgetrain.runtime.samples.file import HEAD_NBYTES, MAGIC, write_samples
from tests.bundle.loaded import Loaded
from tests.runtime import length_nets

STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror", "-fsyntax-only")


def needs(*commands: str):
    absent = [command for command in commands if shutil.which(command) is None]
    return pytest.mark.skipif(bool(absent), reason=f"{', '.join(absent)} not installed")


@pytest.fixture(scope="module")
def made(program, tmp_path_factory):
    """Create a bundle with samples; return its folder and manifest."""
    folder = tmp_path_factory.mktemp("made")
    draw = np.random.default_rng(1)
    x, y = draw.standard_normal((24, 6)).astype(np.float32), np.arange(24) % 3
    np.savez(folder / "data.npz", x_train=x, y_train=y, x_test=x[:5], y_test=y[:5])
    data = et.open_data(f"npz:{folder / 'data.npz'}")
    return folder, bundle(program, folder, name="two", data=data)


def said(*argv: object, cwd=None) -> str:
    done = subprocess.run([*map(str, argv)], capture_output=True, text=True, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_bundle_is_these_files_and_says_what_they_take(made, program):
    folder, manifest = made
    assert {path.name for path in folder.iterdir()} == {
        "libtwo.a", "two.h", "main.c", "Makefile", "MANIFEST.json", "two.samples", "data.npz",
        "two.weights",
    }  # fmt: skip
    assert json.loads((folder / "MANIFEST.json").read_text()) == manifest
    assert manifest["check"] == {"steps": 5, "digest": f"{state_digest(program, 5):08x}"}
    ram, flash = manifest["ram_nbytes"], manifest["flash_nbytes"]
    assert ram["arena"] == program.arena_nbytes and ram["written_globals"] == 0
    assert ram["arena"] + ram["plan"] <= ram["memory"] < ram["arena"] + 2048
    assert flash["all"] == sum(n for part, n in flash.items() if part != "all")
    assert 256 < manifest["stack_nbytes"]["deepest_calls"] < 64 << 10
    begun = [name for name, array in program.init.items() if array.any()]
    assert flash["initial_values"] == sum(program.slot(name).nbytes for name in begun)


def test_a_bundle_is_the_same_bytes_each_time(made, program, tmp_path):
    folder, _ = made
    bundle(program, tmp_path, name="two")
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (folder / path.name).read_bytes(), path.name


@needs("ar", "nm")
def test_the_archive_is_one_to_binutils(made, tmp_path):
    folder, _ = made
    assert said("ar", "t", folder / "libtwo.a").split() == ["two.o", "two_w.o"]
    rows = [line.split() for line in said("nm", "-g", folder / "libtwo.a").splitlines() if line]
    symbols = [row[-1] for row in rows if len(row) == 3]
    assert {row[1] for row in rows if len(row) == 3} == {"T"} and "two_step" in symbols
    assert all(name.startswith("two_") for name in symbols)
    indexed = said("nm", "-s", folder / "libtwo.a").split("\n\n")[0]
    assert all(f"{name} in two.o" in indexed for name in set(symbols) - {"two_init"})
    assert "two_init in two_w.o" in indexed
    both = tmp_path / "both.a"
    both.write_bytes(archive({"a.o": (b"odd", ["x", "yy"]), "bb.o": (b"even", [])}))
    assert said("ar", "t", both).split() == ["a.o", "bb.o"]
    assert said("ar", "p", both, "a.o") == "odd"


def test_the_archive_refuses_long_names():
    with pytest.raises(ValueError, match="more than 15 bytes"):
        archive({"a" * 16: (b"", [])})


@needs("gcc", "g++")
def test_the_header_is_c_and_cpp_without_a_warning(made):
    folder, _ = made
    for compiler, standard in (("gcc", "c99"), ("g++", "c++11")):
        kind = "c" if compiler == "gcc" else "c++"
        said(compiler, f"-std={standard}", *STRICT, "-x", kind, folder / "two.h")


@pytest.fixture
def built(made, tmp_path):
    """Copy the bundle and build its program; return the folder."""
    for path in made[0].iterdir():
        shutil.copy(path, tmp_path)
    said("make", "CC=gcc -Werror", cwd=tmp_path)
    return tmp_path


@needs("gcc", "make")
def test_main_trains_from_a_file_and_goes_on_from_its_state(made, program, built, tmp_path):
    folder, manifest = made
    assert said("./two", "check", cwd=tmp_path).strip() == manifest["check"]["digest"]
    whole = said("./two", "two.samples", 9, cwd=tmp_path).splitlines()
    said("./two", "two.samples", 4, "state", cwd=tmp_path)
    parts = said("./two", "two.samples", 9, "state", cwd=tmp_path).splitlines()
    assert whole[-2:] == parts[-2:] and whole[-1].startswith("digest ")
    trainer = et.Trainer(program, f"npz:{folder / 'data.npz'}")
    assert trainer.resume(tmp_path / "state") and trainer.steps == 9
    found = trainer.evaluate(f"npz:{folder / 'data.npz'}")
    assert whole[-2] == f"eval loss {found['loss']:.6f} accuracy {found['accuracy']:.4f}"
    trainer.close()


def _samples(kind, width):
    """A file of 16 samples of `width` bytes, all 0."""
    return struct.pack("<4I2f2I", MAGIC, 16, 0, kind, 1.0, 0.0, width, 0) + bytes(16 * width)


WIDTHS = [(0, 28, 0), (0, 24, 1), (4, 10, 0), (4, 9, 1)]  # type, bytes of a sample, exit status


@needs("gcc", "make")
def test_main_refuses_a_file_with_samples_of_another_width(built):
    for kind, width, expected in WIDTHS:
        (built / "own.samples").write_bytes(_samples(kind, width))
        done = subprocess.run(["./two", "own.samples", "1"], capture_output=True, cwd=built)
        assert done.returncode == expected, (kind, width, done.stderr)


BOARD = """#include "two.h"
const two_store *const board_store = NULL;
void board_print(const char *text) { (void)text; }
const unsigned char two_samples[] = {DATA};
"""


@needs("gcc")
def test_main_of_a_board_refuses_samples_of_another_width(made, program, tmp_path):
    folder, image = made[0], image_for(program, 64)
    (tmp_path / "main.c").write_text(texts.main("two", image, TARGETS["cortex-m7"], True))
    for kind, width, expected in WIDTHS:
        data = ", ".join(map(str, _samples(kind, width)))
        (tmp_path / "board.c").write_text(BOARD.replace("DATA", data))
        files = "main.c", "board.c", folder / "libtwo.a", "-o", "run"
        said("gcc", "-DSTEPS=1", f"-I{folder}", *files, "-lm", cwd=tmp_path)
        assert subprocess.run([tmp_path / "run"]).returncode == expected, (kind, width)


@needs("gcc", "make")
def test_main_says_no_accuracy_of_a_loss_that_counts_nothing(two_layers, tmp_path):
    draw = np.random.default_rng(1)
    x, y = (draw.standard_normal((24, k)).astype(np.float32) for k in (6, 3))
    np.savez(tmp_path / "data.npz", x_train=x, y_train=y, x_test=x[:5], y_test=y[:5])
    data = f"npz:{tmp_path / 'data.npz'}"
    program = et.compile(two_layers, loss="mse", minibatch=8, threads=1)
    bundle(program, tmp_path, name="two", data=et.open_data(data))
    said("make", "CC=gcc -Werror", cwd=tmp_path)
    whole = said("./two", "two.samples", 6, "state", cwd=tmp_path).splitlines()
    trainer = et.Trainer(program, data)
    assert trainer.resume(tmp_path / "state") and trainer.steps == 6
    assert whole[-2] == f"eval loss {trainer.evaluate(data)['loss']:.6f}"
    trainer.close()


def test_samples_of_bytes_stay_bytes(program, tmp_path):
    from tests.digits_runs import digits_program

    digits = digits_program(threads=1)
    nbytes = write_samples(digits, et.open_data("digits"), tmp_path / "digits.samples")
    data = (tmp_path / "digits.samples").read_bytes()
    assert nbytes == len(data) == HEAD_NBYTES + 1797 * (64 + 4)
    with pytest.raises(et.errors.DataError, match="the model expects"):
        write_samples(program, et.open_data("digits"), tmp_path / "wrong.samples")


def _bytes_and(tmp_path, kind) -> str:
    """Samples with training bytes and test values of `kind`."""
    draw = np.random.default_rng(1)
    x, y = draw.integers(0, 256, (24, 6)).astype(np.uint8), np.arange(24) % 3
    held = x[:5].astype(kind) / (255 if kind == "float32" else 1)
    path = tmp_path / f"{kind}.npz"
    np.savez(path, x_train=x, y_train=y, x_test=held.astype(kind), y_test=y[:5])
    return f"npz:{path}"


@pytest.mark.parametrize(("kind", "width"), [("uint8", 6 + 4), ("float32", 6 * 4 + 4)])
def test_samples_are_bytes_only_if_both_splits_are(program, tmp_path, kind, width):
    data, path = et.open_data(_bytes_and(tmp_path, kind)), tmp_path / "two.samples"
    assert write_samples(program, data, path) == len(path.read_bytes())
    content = path.read_bytes()
    assert struct.unpack_from("<4I2f2I", content)[6] == width
    assert len(content) == HEAD_NBYTES + (24 + 5) * width


def test_a_sample_of_another_type_than_the_first_is_refused(program, tmp_path, monkeypatch):
    data, path = et.open_data(_bytes_and(tmp_path, "uint8")), tmp_path / "two.samples"
    read = data.read

    def first_is_bytes(names, indices, *given):
        found = read(names, indices, *given)
        return found if len(indices) == 1 else {k: v.astype(np.int8) for k, v in found.items()}

    monkeypatch.setattr(data, "read", first_is_bytes)
    with pytest.raises(et.errors.DataError, match="sample 0: x is int8; expected uint8"):
        write_samples(program, data, path)
    assert not path.exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "Net"}, "name 'Net': expected .* lower-case letters"),
        ({"name": "int"}, "name 'int': 'int' is already used"),
        ({"name": "map"}, "name 'map': 'MAP_FAILED' is already used"),
        ({"name": "../x"}, "name '../x': expected"),
        ({"target": "pdp11"}, "target 'pdp11': expected one of host, "),
        ({"target": "cortex-m7"}, "compiled for [a-z0-9-]+ with"),
        ({"cc": "no-such-cc"}, "cc 'no-such-cc': no such command"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(program, tmp_path, given, message):
    if given == {"target": "cortex-m7"} and program.recipe["lanes"] == 1:
        pytest.skip("this processor has no vectors")
    with pytest.raises(UsageError, match=message):
        bundle(program, tmp_path / "out", **given)
    assert not (tmp_path / "out").exists()


def test_threads_and_executables_of_a_microcontroller_are_refused(two_layers, tmp_path):
    one = et.compile(two_layers, minibatch=4, target="armv7", threads=2)
    with pytest.raises(UsageError, match="has no threads; the Program was compiled for 2"):
        bundle(one, tmp_path / "out", target="cortex-m7")
    one = et.compile(two_layers, minibatch=4, target="cortex-m7")
    with pytest.raises(UsageError, match="cc 'gcc': .*board"):
        bundle(one, tmp_path / "out", cc="gcc")


def test_a_bundle_has_the_length_that_is_chosen(program, tmp_path):
    """The chosen length of a Program with several, with the same bits."""
    several = length_nets.compiled()
    with pytest.raises(UsageError, match="length 5: .* 4, 7, 12"):
        bundle(several, tmp_path / "out", length=5)
    assert not (tmp_path / "out").exists()
    with pytest.raises(UsageError, match="length 4: .* one length"):
        bundle(program, tmp_path / "out", length=4)
    edge = str(several.save(tmp_path / "net.edge"))
    assert main(["bundle", edge, "-o", str(tmp_path / "out"), "--length", "7"]) == 0
    manifest = json.loads((tmp_path / "out/MANIFEST.json").read_text())
    assert manifest["tapes"]["set"].startswith("T=7,")
    seven = of_length(several, 7)
    digest = Loaded(seven).net().made_up().steps(5).digest() & 0xFFFFFFFF
    assert f"{digest:08x}" == manifest["check"]["digest"]
    assert digest == state_digest(seven, 5)


def test_bundle_is_a_command(program, tmp_path, capsys):
    path = program.save(tmp_path / "Two Layers.edge")
    assert main(["bundle", str(path), "-o", str(tmp_path / "out"), "--size", "--json"]) == 0
    manifest = json.loads(capsys.readouterr().out)
    assert (manifest["name"], manifest["optimised_for"]) == ("two_layers", "size")
    assert main(["bundle", str(path), "-o", str(tmp_path / "out")]) == 0
    assert "wrote " in capsys.readouterr().out
    assert main(["bundle", str(path), "-o", str(tmp_path / "out"), "--name", "9"]) == 2
    assert capsys.readouterr().err.startswith("edgetrain bundle: error: name '9': expected")
    table = tmp_path / "rows.csv"
    table.write_text("kind,a,b,c,d,e,f\npear,1,2,3,4,5,6\nplum,2,3,4,5,6,7\n")
    data = ["--data", f"csv:{table}", "--name", "two"]
    assert main(["bundle", str(path), "-o", str(tmp_path / "out"), *data, "--label", "kind"]) == 0
    samples = (tmp_path / "out/two.samples").read_bytes()[HEAD_NBYTES:]
    assert np.frombuffer(samples, np.float32, 6).tolist() == [1, 2, 3, 4, 5, 6]
    assert np.frombuffer(samples, np.int32, 1, 24).tolist() == [0]
    assert main(["bundle", str(path), "-o", str(tmp_path / "out"), "--label", "kind"]) == 2
    assert "--label" in capsys.readouterr().err
