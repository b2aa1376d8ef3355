"""Augmentation: its effect, and that it only depends on (seed, epoch, index)."""

import numpy as np

from edgetrain.data.registry import open_data
from edgetrain.data.sources.cifar10 import crop_and_flip

from . import writers as w


def test_crop_and_flip_shifts_by_up_to_the_padding_and_mirrors():
    images = np.arange(1, 1 + 3 * 32 * 32).reshape(1, 3, 32, 32)
    bits = np.arange(2, dtype=np.uint64)  # top 0, left 0: four black rows and columns enter
    plain, mirrored = crop_and_flip(np.repeat(images, 2, axis=0), bits, 4)
    expected = np.zeros_like(images[0])
    expected[:, 4:, 4:] = images[0, :, :28, :28]
    np.testing.assert_array_equal(plain, expected)
    np.testing.assert_array_equal(mirrored, expected[:, :, ::-1])


def test_augmentation_reaches_every_shift_and_both_sides(tmp_path):
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**64, 3000, dtype=np.uint64)
    image = np.zeros((1, 1, 9, 9), np.uint8)
    image[0, 0, 4, 4], image[0, 0, 4, 5] = 1, 2
    found = crop_and_flip(np.repeat(image, 3000, axis=0), bits, 4)[:, 0]
    places = np.argwhere(found == 1)
    assert len(places) == 3000 and len(np.unique(places[:, 1:], axis=0)) == 81
    right = sum(row[y, x + 1] == 2 for row, (_, y, x) in zip(found, places, strict=True) if x < 8)
    assert 0.35 < right / 3000 < 0.55  # half of the images, minus those cut at the border


def test_augmentation_is_a_function_of_seed_epoch_and_index(tmp_path):
    w.write_cifar10(tmp_path)
    source = open_data(f"cifar10:{tmp_path}")

    def images(key, indices, train=True):
        out = np.empty((len(indices), 3, 32, 32), np.float32)
        source.fill(np.array(indices), {"x": out}, key=key, train=train)
        return out

    whole = images((1, 2), range(20))
    np.testing.assert_array_equal(images((1, 2), [7, 3]), whole[[7, 3]])
    for other in (images((1, 3), range(20)), images((2, 2), range(20))):
        assert (other != whole).any(axis=(1, 2, 3)).mean() > 0.8
    plain = images((1, 2), range(20), train=False)
    np.testing.assert_array_equal(plain, images((9, 9), range(20), train=False))
    still = open_data(f"cifar10:{tmp_path}", augment=False)
    np.testing.assert_array_equal(w.read_all(still, train=True)["x"], plain)


def test_augmentation_does_not_depend_on_the_fields_that_are_read(tmp_path):
    w.write_cifar10(tmp_path)
    source = open_data(f"cifar10:{tmp_path}")
    both = w.read_all(source, train=True, key=(5, 5))
    x, y = np.empty((20, 3, 32, 32), np.float32), np.empty(20, np.int32)
    source.fill(np.arange(20), {"x": x}, key=(5, 5), train=True)
    source.fill(np.arange(20), {"y": y}, key=(5, 5), train=True)
    np.testing.assert_array_equal(both["x"], x)
    np.testing.assert_array_equal(both["y"], y)
