"""Folders of pictures and sounds: what they become, and what is refused."""

import os
import struct
import wave
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from edgetrain.data.files.kept import Kept
from edgetrain.data.files.wav import wav_head, wav_samples
from edgetrain.data.registry import open_data
from edgetrain.data.sources.sounds import log_mel
from edgetrain.errors import DataError, EdgetrainError

RATE = 8000


def write_pictures(folder: Path, sizes: dict[str, tuple[int, int]], suffix: str = ".png") -> Path:
    """One folder per colour with one picture of that colour; sizes: (width, height)."""
    for name, size in sizes.items():
        place = folder / name
        place.mkdir(parents=True)
        Image.new("RGB", size, name).save(place / f"one{suffix}")
        (place / "notes.txt").write_text("left aside")
    return folder


def write_wav(path: Path, samples: np.ndarray, rate: int = RATE, width: int = 2) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    channels = 1 if samples.ndim == 1 else samples.shape[1]
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        whole = np.round(samples.reshape(-1) * (2 ** (8 * width - 1) - 1)).astype(np.int64)
        if width == 1:
            raw = (whole + 128).astype(np.uint8).tobytes()
        else:
            raw = b"".join(struct.pack("<q", int(v))[:width] for v in whole)
        file.writeframes(raw)


def filled(source, shape: tuple[int, ...]) -> np.ndarray:
    out = np.empty((source.n, *shape), np.float32)
    source.adapt({"x": shape})
    source.fill(np.arange(source.n), {"x": out})
    return out


@pytest.mark.parametrize("spec", ["dir", "images"])
@pytest.mark.parametrize("shape", [(3, 4, 6), (4, 6, 3), (1, 4, 6), (4, 6)])
def test_pictures_become_what_the_model_takes(tmp_path: Path, spec: str, shape) -> None:
    write_pictures(tmp_path, {"red": (12, 20), "lime": (6, 4), "blue": (9, 4)})
    source = open_data(f"{spec}:{tmp_path}")
    assert (source.n, source.classes, source.labels) == (3, 3, ("blue", "lime", "red"))
    found = filled(source, shape)
    colours = {"blue": (0, 0, 1), "lime": (0, 1, 0), "red": (1, 0, 0)}
    for row, name in zip(found, source.labels, strict=True):
        if 3 not in shape:
            grey = np.dot(colours[name], (0.299, 0.587, 0.114))
            np.testing.assert_allclose(row, np.full(shape, grey), atol=0.005)
        else:
            pixels = row if shape[0] != 3 else np.moveaxis(row, 0, 2)
            np.testing.assert_allclose(pixels, np.broadcast_to(colours[name], (4, 6, 3)))
    y = np.empty(3, np.int64)
    source.fill(np.arange(3), {"y": y})
    assert y.tolist() == [0, 1, 2] and "scaled to cover" in source.note


def test_pictures_keep_their_pixels_where_sizes_agree(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
    (tmp_path / "a").mkdir()
    Image.fromarray(pixels).save(tmp_path / "a" / "x.png")
    source = open_data(f"images:{tmp_path}")
    found = filled(source, (3, 5, 7))[0]
    np.testing.assert_array_equal(found, np.moveaxis(pixels, 2, 0) * np.float32(1 / 255))
    assert source.note == ""


def test_pictures_are_cut_in_the_middle(tmp_path: Path) -> None:
    pixels = np.zeros((4, 8, 3), np.uint8)
    pixels[:, 2:6] = 255
    (tmp_path / "a").mkdir()
    Image.fromarray(pixels).save(tmp_path / "a" / "x.png")
    assert filled(open_data(f"images:{tmp_path}"), (3, 4, 4)).min() == 1.0


def test_folders_of_splits_share_classes(tmp_path: Path) -> None:
    write_pictures(tmp_path / "train", {"red": (4, 4), "blue": (4, 4)})
    write_pictures(tmp_path / "val", {"red": (4, 4)})
    source = open_data(f"dir:{tmp_path}")
    assert source.splits == ("train", "test")
    test = source.for_split("test")
    y = np.empty(1, np.int64)
    test.fill(np.arange(1), {"y": y})
    assert y.tolist() == [1] and test.labels == ("blue", "red")


def test_arrays_in_folders_have_the_splits_of_pictures(tmp_path: Path) -> None:
    for split, names in (("train", "ab"), ("val", "b")):
        for name in names:
            place = tmp_path / split / name / "inner"
            place.mkdir(parents=True)
            np.save(place / "one.npy", np.full((2, 3), ord(name), np.float32))
    source = open_data(f"dir:{tmp_path}")
    assert source.splits == ("train", "test") and source.n == 2
    y = np.empty(1, np.int64)
    source.for_split("test").fill(np.arange(1), {"y": y})
    assert y.tolist() == [1]


@pytest.mark.parametrize("other", ["npy", "wav"])
def test_folders_of_two_kinds_are_refused(tmp_path: Path, other: str) -> None:
    write_pictures(tmp_path, {"red": (8, 8), "blue": (8, 8)})
    if other == "npy":
        np.save(tmp_path / "red" / "z.npy", np.zeros((3, 8, 8), np.float32))
    else:
        write_wav(tmp_path / "red" / "z.wav", np.zeros(100, np.float32))
    with pytest.raises(DataError, match=rf"pictures \(\.png\), .*\.{other}.*; expected one kind"):
        open_data(f"dir:{tmp_path}")
    assert open_data(f"images:{tmp_path}").n == 2


def test_samples_in_folders_of_classes_are_found(tmp_path: Path) -> None:
    for name in ("red", "blue"):
        write_pictures(tmp_path / name / "inner", {name: (8, 8)})
    assert open_data(f"dir:{tmp_path}").n == open_data(f"images:{tmp_path}").n == 2


def test_broken_pictures_are_named(tmp_path: Path) -> None:
    write_pictures(tmp_path, {"red": (4, 4), "blue": (4, 4)})
    (tmp_path / "red" / "two.png").write_bytes(b"no picture")
    source = open_data(f"dir:{tmp_path}")
    with pytest.raises(DataError, match=r"red/two.png: not a readable picture \(its content"):
        filled(source, (3, 4, 4))


@pytest.mark.parametrize("content", [{}, {"a": []}])
def test_folders_without_samples_are_refused(tmp_path: Path, content: dict) -> None:
    for name in content:
        (tmp_path / name).mkdir()
    for kind in ("images", "sounds", "dir"):
        with pytest.raises(EdgetrainError):
            open_data(f"{kind}:{tmp_path}")


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_sounds_of_every_width_are_read(tmp_path: Path, width: int) -> None:
    wanted = np.sin(np.arange(200) / 7) * 0.9
    write_wav(tmp_path / "a.wav", np.stack([wanted, wanted], 1), width=width)
    head = wav_head(tmp_path / "a.wav")
    found = wav_samples(tmp_path / "a.wav", head)
    assert head.rate == RATE and found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, atol=2.0 ** (2 - 8 * width) + 1e-6)


def test_sounds_are_cut_and_followed_by_silence(tmp_path: Path) -> None:
    write_wav(tmp_path / "no" / "1.wav", np.linspace(-0.5, 0.5, 100))
    write_wav(tmp_path / "yes" / "1.wav", np.full(20, 0.25))
    source = open_data(f"dir:{tmp_path}")
    assert source.labels == ("no", "yes") and source.fields["x"].shape == (1, 100)
    found = filled(source, (1, 40))
    np.testing.assert_allclose(found[0, 0], np.linspace(-0.5, 0.5, 100)[30:70], atol=1e-4)
    np.testing.assert_allclose(found[1, 0], [0.25] * 20 + [0.0] * 20, atol=1e-4)


@pytest.mark.parametrize(("rate", "mels", "frames"), [(8000, 20, 30), (16000, 40, 98)])
def test_log_mel_is_what_the_docs_say(rate: int, mels: int, frames: int) -> None:
    window, hop = round(0.025 * rate), round(0.01 * rate)
    count = window + (frames - 1) * hop
    samples = np.random.default_rng(0).standard_normal(count).astype(np.float32) * 0.1
    size = 2 ** int(np.ceil(np.log2(window)))
    padded = torch.zeros(size, dtype=torch.float64)
    padded[:window] = torch.hann_window(window, dtype=torch.float64)
    pieces = torch.tensor(samples, dtype=torch.float64).unfold(0, window, hop)
    spectra = torch.fft.fft(torch.nn.functional.pad(pieces, (0, size - window)) * padded)
    power = spectra.abs().square()[:, : size // 2 + 1].numpy()
    points = np.linspace(2595 * np.log10(1 + 20 / 700), 2595 * np.log10(1 + rate / 1400), mels + 2)
    edges = 700 * (10 ** (points / 2595) - 1)
    wanted = np.zeros((mels, frames))
    for m in range(mels):
        for k in range(size // 2 + 1):
            f = k * rate / size
            if edges[m] < f < edges[m + 2]:
                up = (f - edges[m]) / (edges[m + 1] - edges[m])
                down = (edges[m + 2] - f) / (edges[m + 2] - edges[m + 1])
                wanted[m] += power[:, k] * min(up, down)
    found = log_mel(samples, rate, mels, frames)
    np.testing.assert_allclose(found, np.log(np.maximum(wanted, 1e-6)), atol=1e-4)


def test_sounds_become_features_of_models_with_two_axes(tmp_path: Path) -> None:
    tone = np.sin(2 * np.pi * 1000 * np.arange(4000) / RATE) * 0.5
    write_wav(tmp_path / "a" / "1.wav", tone)
    found = filled(open_data(f"sounds:{tmp_path}"), (1, 20, 30))[0, 0]
    assert found.shape == (20, 30) and 8 <= found[:, 5].argmax() <= 11  # 1 kHz in 20 Hz to 4 kHz


@pytest.mark.parametrize("how", [{"test_fraction": 0.5}, {"augment": "noise=0.1"}])
def test_sounds_keep_their_rate_in_splits_and_under_noise(tmp_path: Path, how: dict) -> None:
    for name in ("1", "2"):
        write_wav(tmp_path / "a" / f"{name}.wav", np.zeros(10))
    assert open_data(f"dir:{tmp_path}", **how).rate == RATE


def test_sounds_of_other_rates_are_named(tmp_path: Path) -> None:
    write_wav(tmp_path / "a" / "1.wav", np.zeros(10))
    write_wav(tmp_path / "a" / "2.wav", np.zeros(10), rate=16000)
    with pytest.raises(DataError, match=r"2.wav: 16000 samples per second; expected 8000"):
        filled(open_data(f"dir:{tmp_path}"), (1, 10))


def test_broken_sounds_are_named(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.wav").write_bytes(b"RIFF....")
    with pytest.raises(DataError, match=r"1.wav: not a .*wav file"):
        open_data(f"dir:{tmp_path}")


def test_sounds_of_floats_are_read(tmp_path: Path) -> None:
    wanted = np.sin(np.arange(200) / 7).astype(np.float32)
    for width in (4, 8):
        form = struct.pack("<HHIIHH", 3, 2, RATE, 0, 0, 8 * width)
        data = np.repeat(wanted, 2).astype(f"<f{width}").tobytes()
        head = b"RIFF\0\0\0\0WAVEfmt " + struct.pack("<I", len(form)) + form + b"data"
        (tmp_path / "a.wav").write_bytes(head + b"\xff" * 4 + data)  # the length that streams claim
        found = wav_samples(tmp_path / "a.wav", wav_head(tmp_path / "a.wav"))
        np.testing.assert_array_equal(found, wanted)


def test_sounds_are_looked_at_before_training(tmp_path: Path) -> None:
    for name in ("1", "2"):
        write_wav(tmp_path / "a" / f"{name}.wav", np.zeros(10), rate=8000 * int(name))
    with pytest.raises(DataError, match=r"2.wav: 16000 samples per second; expected 8000"):
        open_data(f"dir:{tmp_path}").check_values()


def test_pictures_of_sixteen_bits_keep_their_range(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    pixels = np.array([[0, 256, 300], [65535, 32768, 255]], np.uint16)
    Image.fromarray(pixels).save(tmp_path / "a" / "x.png")
    found = filled(open_data(f"images:{tmp_path}"), (1, 2, 3))[0, 0]
    np.testing.assert_allclose(found * 255, pixels >> 8, atol=1e-4)


@pytest.mark.parametrize("most", [189, 300])
def test_pictures_of_32_bits_keep_their_range_or_are_refused(tmp_path: Path, most: int) -> None:
    (tmp_path / "a").mkdir()
    pixels = np.array([[0, 10, most]], np.int32)
    Image.fromarray(pixels).save(tmp_path / "a" / "x.tiff")
    source = open_data(f"images:{tmp_path}")
    if most > 255:
        with pytest.raises(DataError, match="32 bits: save them with 8 or 16"):
            filled(source, (1, 1, 3))
        return
    np.testing.assert_allclose(filled(source, (1, 1, 3))[0, 0] * 255, pixels, atol=1e-4)


@pytest.mark.parametrize("frame", [4, 5])
def test_sounds_of_24_bits_in_four_bytes(tmp_path: Path, frame: int) -> None:
    wanted, path = np.linspace(-0.5, 0.5, 100, dtype=np.float32), tmp_path / "a.wav"
    write_wav(path, wanted, width=4)
    data = bytearray(path.read_bytes())
    data[32:36] = struct.pack("<HH", frame, 24)
    path.write_bytes(data)
    if frame == 5:
        with pytest.raises(DataError, match="5 bytes for 1 values of 24 bits"):
            wav_head(path)
        return
    np.testing.assert_allclose(wav_samples(path, wav_head(path)), wanted, atol=1e-6)


def test_strips_are_scaled_without_their_ends(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    pixels = np.zeros((1, 200_000, 3), np.uint8)
    pixels[:, 99_990:100_010] = 255
    Image.fromarray(pixels).save(tmp_path / "a" / "x.png")
    assert filled(open_data(f"images:{tmp_path}"), (3, 32, 32)).min() == 1.0


def test_turned_pictures_have_their_turned_shape(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    notes = Image.Exif()
    notes[0x0112] = 6
    Image.new("RGB", (6, 4)).save(tmp_path / "a" / "x.jpg", exif=notes)
    source = open_data(f"images:{tmp_path}")
    assert source.fields["x"].shape == (3, 6, 4)
    assert filled(source, (3, 6, 4)).shape == (1, 3, 6, 4)


REFUSED = [
    ("x.png", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "no known format"),
    ("x.png", b"P5 9999 9999 255 " + bytes(9), "expected at most"),
    ("x.tif", "F", "its pixels are floats"),
    ("x.wav", struct.pack("<4sI4s4sI", b"RIFF", 0, b"WAVE", b"data", 9), "no format chunk"),
]


@pytest.mark.parametrize(("name", "content", "message"), REFUSED)
def test_what_is_no_sample_is_named(tmp_path: Path, name: str, content, message: str) -> None:
    (tmp_path / "a").mkdir()
    if isinstance(content, str):
        Image.new(content, (4, 4)).save(tmp_path / "a" / name)
    else:
        (tmp_path / "a" / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        filled(open_data(f"dir:{tmp_path}"), (1, 4, 4))


@pytest.mark.parametrize("suffix", ["png", "wav", "npy"])
def test_pipes_are_no_samples(tmp_path: Path, suffix: str) -> None:
    (tmp_path / "a").mkdir()
    os.mkfifo(tmp_path / "a" / f"x.{suffix}")
    with pytest.raises(DataError, match="not a regular file"):
        open_data(f"dir:{tmp_path}")


@pytest.mark.parametrize("name", [b"a\nb", b"\xff", b"\x1b[2J", b"x" * 201])
def test_names_that_are_none_of_classes_are_refused(tmp_path: Path, name: bytes) -> None:
    place = os.fsencode(tmp_path) + b"/" + name
    os.mkdir(place)
    Image.new("L", (4, 4)).save(Path(os.fsdecode(place), "x.png"))
    with pytest.raises(DataError, match="expected class names") as found:
        open_data(f"images:{tmp_path}")
    assert str(found.value).isprintable()


def test_features_are_computed_once_and_kept_beside_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = np.random.default_rng(0)
    for k in range(5):
        write_wav(tmp_path / "in" / "a" / f"{k}.wav", draw.uniform(-0.5, 0.5, 4000))
    calls: list[int] = []

    def counted(*args):
        calls.append(1)
        return log_mel(*args)

    monkeypatch.setattr("edgetrain.data.sources.sounds.log_mel", counted)
    source = open_data(f"sounds:{tmp_path / 'in'}")
    source.keep_in(tmp_path / "runs" / "not there yet")
    first = filled(source, (1, 20, 30))
    assert np.array_equal(filled(source, (1, 20, 30)), first) and len(calls) == 5
    filled(source, (10, 30))
    assert len(calls) == 10 and [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize("most", [0, 2 * 4 * 6, 10**6])
def test_kept_samples_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr("edgetrain.data.files.kept.MOST", most)
    kept = Kept(5, (2, 3), tmp_path)
    for k in range(5):
        kept.put(k, np.full((2, 3), k, np.float32))
    found = [kept.get(k) for k in range(5)]
    room = min(5, most // 24)
    assert [array is not None for array in found] == [k < room for k in range(5)]
    assert all(np.array_equal(a, np.full((2, 3), k)) for k, a in enumerate(found[:room]))
    kept.close()
    assert kept.get(0) is None
