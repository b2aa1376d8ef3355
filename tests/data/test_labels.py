"""Labels that are words, targets that are inputs, samples that are augmented."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

import edgetrain as et
from edgetrain.cli import main
from edgetrain.data.augment import Augmentation, normal, shifted
from edgetrain.data.order.hashing import key_of, random_bits
from edgetrain.data.order.validation import Division
from edgetrain.data.registry import open_data
from edgetrain.data.sources.labels import class_counts, class_weights
from tests.runtime.models import write_rows

X = np.random.default_rng(0).normal(size=(40, 3, 8)).astype(np.float32)
WORDS = np.array(["cat", "dog", "ant", "dog"] * 10)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rows(tmp_path_factory.mktemp("words") / "rows.onnx", classes=3)


def targets(source) -> list[int]:
    y = np.empty(source.n, np.int64)
    source.fill(np.arange(source.n), {"y": y})
    return y.tolist()


def sources(folder: Path) -> dict[str, object]:
    np.savez(folder / "stored.npz", x=X, y=WORDS)
    np.savez_compressed(folder / "packed.npz", x=X, y=WORDS)
    rows = [",".join([*map(str, row[:2]), word]) for row, word in zip(X[:, 0], WORDS, strict=True)]
    (folder / "a.csv").write_text("\n".join(["one,two,kind", *rows]))
    (folder / "b.csv").write_text("\n".join(rows))
    return {
        "arrays": (X, WORDS), "list": (X, WORDS.tolist()), "npz": f"npz:{folder}/stored.npz",
        "packed": f"npz:{folder}/packed.npz", "csv": f"csv:{folder}/a.csv",
        "csv without a head": f"csv:{folder}/b.csv",
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["arrays", "list", "npz", "packed", "csv", "csv without a head"])
def test_words_are_numbered_in_their_order(tmp_path: Path, kind: str) -> None:
    source = open_data(sources(tmp_path)[kind])
    assert source.labels == ("ant", "cat", "dog") and source.classes == 3
    assert targets(source) == [1, 2, 0, 2] * 10
    assert class_counts(source).tolist() == [10, 10, 20]
    assert class_weights(source) == pytest.approx((40 / 30, 40 / 30, 40 / 60))


def test_words_of_the_test_split_are_those_of_training() -> None:
    data = {"x_train": X, "y_train": WORDS, "x_test": X[:2], "y_test": np.array(["dog", "dog"])}
    assert targets(open_data(data, split="test")) == [2, 2]
    with pytest.raises(et.DataError, match="label 'cow'; expected"):
        targets(open_data({**data, "y_test": np.array(["cow", "dog"])}, split="test"))


def test_words_among_numbers_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,2\n3,x\n5,6\n")
    with pytest.raises(et.DataError, match="line 2, column 2: 'x'; expected a number"):
        targets(open_data(f"csv:{tmp_path}/a.csv"))
    (tmp_path / "b.csv").write_text("a,b\n1,x\n2,\n")
    with pytest.raises(et.DataError, match="an empty label"):
        open_data(f"csv:{tmp_path}/b.csv")


def test_labels_go_into_the_run_and_the_trained_model(model: Path, tmp_path: Path) -> None:
    program = et.compile(model, minibatch=4, microbatch=4)
    with et.Trainer(program, (X, WORDS), tmp_path / "run") as trainer:
        trainer.fit(epochs=1)
        trainer.export_onnx(tmp_path / "a.onnx")
    assert main(["export", str(tmp_path / "run"), "-o", str(tmp_path / "b.onnx")]) == 0
    for name in ("a.onnx", "b.onnx"):
        props = {p.key: p.value for p in onnx.load(tmp_path / name).metadata_props}
        assert json.loads(props["edgetrain.labels"]) == ["ant", "cat", "dog"]
    onnx.checker.check_model(onnx.load(tmp_path / "b.onnx"))
    assert et.load_onnx(tmp_path / "b.onnx").parameters == et.load_onnx(model).parameters
    others = np.array(["cat", "dog", "bee", "dog"] * 10)
    with (
        et.Trainer(program, (X, others), tmp_path / "run") as trainer,
        pytest.raises(et.CheckpointError, match="ant, cat, dog; the data has bee"),
    ):
        trainer.resume()


def test_other_data_gets_the_run_s_numbers(model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "some.npz", x=X[:4], y=np.array(["dog", "cat", "dog", "cat"]))
    program = et.compile(model, minibatch=4, microbatch=4)
    some = X[:4], np.array([2, 1, 2, 1])
    with et.Trainer(program, (X, WORDS), tmp_path / "run") as trainer:
        trainer.fit(epochs=1)
        assert trainer.evaluate(f"npz:{tmp_path}/some.npz") == trainer.evaluate(some)
        with pytest.raises(et.DataError, match="class 'cow'; .* ant, cat, dog"):
            trainer.evaluate((X[:2], np.array(["cow", "dog"])))
        with et.Trainer(program, (X, WORDS), validation=(X[:2], np.array(["dog", "cat"]))) as other:
            assert targets(other.data.evaluation()) == [2, 1]
    assert main(["eval", str(tmp_path / "run"), "--data", f"npz:{tmp_path}/some.npz"]) == 0


def test_an_input_may_be_the_target(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=X)
    (tmp_path / "x.csv").write_text("\n".join(",".join(map(str, row)) for row in X[:, 0]))
    for spec, shape in ((f"npz:{tmp_path}/x.npz", (3, 8)), (f"csv:{tmp_path}/x.csv", (8,))):
        source = open_data(spec, target="x")
        x, y = (np.empty((source.n, *shape), np.float32) for _ in range(2))
        source.fill(np.arange(source.n), {"x": x, "y": y})
        np.testing.assert_array_equal(x, y)
        assert source.classes is None
    with pytest.raises(et.DataError, match="target 'z'.* found x"):
        open_data((X, WORDS), target="z")


@pytest.mark.parametrize("augment", [None, "noise=1e-6"])
def test_a_target_that_is_an_input_is_scaled_like_it(tmp_path: Path, augment: str | None) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 6), np.uint8)
    program = et.compile(write_rows(tmp_path / "m.onnx", (6,), 6), minibatch=4, loss="mse")
    source = open_data({"x": pixels}, target="x", augment=augment)
    with et.Trainer(program, source) as trainer:
        x = (pixels / 255).astype(np.float32)
        expected = np.mean((trainer.predict(x) - x) ** 2)
        assert trainer.evaluate(source)["loss"] == pytest.approx(expected, rel=1e-5)


def test_an_autoencoder_trains_by_a_command(model: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = write_rows(tmp_path / "auto.onnx", (8,), classes=8)
    np.savez("x.npz", x=X[:, 0])
    argv = ["--data", "npz:x.npz", "--target-input", "x"]
    train = ["train", str(path), *argv, "--loss", "mse", "--epochs", "2", "--minibatch", "8"]
    assert main([*train, "--out", "run"]) == 0
    assert main(["eval", "run", *argv, "--metrics", "mae,rmse"]) == 0
    assert main(["data", "npz:x.npz", "run/program.edge", "--target", "x"]) == 0


def test_augmentation_is_a_function_of_seed_epoch_and_sample() -> None:
    pictures = np.arange(20 * 2 * 6 * 5, dtype=np.float32).reshape(20, 2, 6, 5)
    source = open_data((pictures, np.zeros(20, np.int64)), augment="flip,crop=2,noise=0.5")
    plain = open_data((pictures, np.zeros(20, np.int64)))

    def read(order: list[int], key: tuple[int, int], train: bool = True, one=source) -> np.ndarray:
        out = np.empty((len(order), 2, 6, 5), np.float32)
        one.fill(np.array(order), {"x": out}, key=key, train=train)
        return out

    whole = read([*range(20)], (7, 3))
    np.testing.assert_array_equal(whole[[5, 2, 19]], read([5, 2, 19], (7, 3)))
    assert (read([*range(20)], (7, 4)) != whole).any() and (whole != pictures).any()
    for train in (True, False):
        np.testing.assert_array_equal(read([3], (7, 3), train, plain), pictures[[3]])
    np.testing.assert_array_equal(read([3, 4], (7, 3), False), pictures[[3, 4]])


@pytest.mark.parametrize("channels", [-3, -1])
def test_shifted_samples_are_moved_and_mirrored(channels: int) -> None:
    rows = np.arange(1, 7 * 4 * 5 + 1).reshape(7, 1, 4, 5)
    bits, how = random_bits(key_of(1, 2), np.arange(7)), Augmentation(flip=True, crop=2)
    axes = (-2, -1) if channels == -3 else (-3, -2)
    found = np.moveaxis(shifted(np.moveaxis(rows, -3, channels), bits, how, axes), channels, -3)
    for k in range(7):
        source = rows[k, 0, :, ::-1] if int(bits[k]) & 1 else rows[k, 0]
        right = (int(bits[k]) >> 8) % 5 - 2
        down = (int(bits[k]) >> 36) % 5 - 2
        for i in range(4):
            for j in range(5):
                a, b = i - down, j - right
                inside = 0 <= a < 4 and 0 <= b < 5
                assert found[k, 0, i, j] == (source[a, b] if inside else 0)


@pytest.mark.parametrize("shape", [(3, 6, 8), (4, 8, 8)])
def test_pictures_with_channels_last_and_masks_are_moved_alike(shape) -> None:
    draw = np.random.default_rng(2)
    y, x = draw.integers(0, 4, (12, *shape[1:])), draw.random((12, *shape), np.float32)
    found = []
    for own in (x, np.moveaxis(x, 1, 3)):
        source = open_data((own, y), augment="flip,crop=2,noise=0.0001")
        source.check_limits({"y": 4}, -100)
        out = {"x": np.empty(own.shape, np.float32), "y": np.empty(y.shape, np.int64)}
        source.fill(np.arange(12), out, key=(1, 1), train=True)
        found.append(out)
    first, last = found
    np.testing.assert_array_equal(first["y"], last["y"])
    np.testing.assert_allclose(np.moveaxis(last["x"], 3, 1), first["x"], atol=2e-3)
    assert (first["y"] == -100).any()


def test_what_a_crop_takes_from_targets_is_ignored_with_validation_too() -> None:
    x, y = np.ones((10, 1, 6, 6), np.float32), np.full((10, 6, 6), 3)
    source = Division(open_data((x, y), augment="crop=2"), 0.2).train
    source.check_limits({"y": 5}, -100)
    out = {"x": np.empty((8, 1, 6, 6), np.float32), "y": np.empty((8, 6, 6), np.int64)}
    source.fill(np.arange(8), out, key=(1, 1), train=True)
    assert {*out["y"][out["x"][:, 0] == 0].tolist()} == {-100}


def augmented(y: np.ndarray, size: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Inputs [12, *size], none of them 0, and targets, after flips and shifts."""
    x = np.random.default_rng(0).random((12, *size), np.float32) + 1
    source = open_data((x, y), augment="flip,crop=2")
    source.check_limits({"y": 50}, ignore_index=-100)
    out = {"x": np.empty_like(x), "y": np.empty(y.shape, y.dtype)}
    source.fill(np.arange(12), out, key=(0, 0), train=True)
    assert (out["x"] != x).any()
    return out["x"], out["y"]


def test_a_target_of_the_pictures_size_moves_with_it() -> None:
    x = np.random.default_rng(0).random((12, 1, 6, 6), np.float32) + 1
    moved, y = augmented((x[:, 0] * 20).astype(np.int64), (1, 6, 6))
    outside = moved[:, 0] == 0
    assert outside.any() and (y[outside] == -100).all()
    np.testing.assert_array_equal(y[~outside], (moved[:, 0] * 20).astype(np.int64)[~outside])


@pytest.mark.parametrize(
    ("y", "size"),
    [(np.arange(12 * 5).reshape(12, 5) % 50, (1, 6, 6)), (np.ones((12, 6), np.float32), (1, 6))],
    ids=["a vector", "floats of one axis"],
)
def test_targets_of_another_size_stay(y: np.ndarray, size: tuple[int, ...]) -> None:
    np.testing.assert_array_equal(augmented(y, size)[1], y)


def test_noise_is_normal_and_of_its_own_counter() -> None:
    found = normal((1, 2), np.arange(400), (50,))
    assert abs(found.mean()) < 0.03 and abs(found.std() - 1) < 0.03
    np.testing.assert_array_equal(found[[7]], normal((1, 2), np.array([7]), (50,)))


@pytest.mark.parametrize("text", ["flop", "crop", "crop=0", "noise=-1", "flip=2", "crop=x"])
def test_augmentation_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(et.UsageError, match="expected flip, crop="):
        open_data((X, WORDS), augment=text)


def test_augmented_runs_resume_bit_for_bit(model: Path, tmp_path: Path) -> None:
    program = et.compile(model, minibatch=4, microbatch=4)

    def run(out: Path | None, steps: int) -> dict[str, bytes]:
        data = open_data((X, WORDS), augment="crop=1,noise=0.1")
        with et.Trainer(program, data, out) as trainer:
            if out:
                trainer.resume()
            trainer.fit(steps=steps)
            return {name: value.tobytes() for name, value in trainer.parameters.items()}

    run(tmp_path / "run", 7)
    assert run(tmp_path / "run", 15) == run(None, 15)


def test_words_are_targets_of_a_loss_with_classes() -> None:
    for words, refused in (("abc", True), ("ab", False), ("123", False)):
        source = open_data((np.zeros((6, 4)), np.array([*words] * 6)[:6]))
        source.check_values()
        if refused:
            with pytest.raises(et.DataError, match="labels are words .a, b, c.; expected numbers"):
                source.check_values(["x", "y"])
        source.check_limits({"y": len(words)})
        source.check_values(["x", "y"])
