"""External tensors are read if valid, and refused if they point outside the folder."""

import os

import numpy as np
import onnx
import pytest

from edgetrain.errors import ModelError
from edgetrain.importer import load_onnx

from .models import external

DATA = np.arange(12, dtype=np.float32)


@pytest.fixture
def path(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    return folder / "m.onnx"


def _refused(path, match):
    with pytest.raises(ModelError, match=match) as caught:
        load_onnx(path)
    assert "\n" not in str(caught.value)


def test_load_reads_external_tensor(path):
    (path.parent / "m.data").write_bytes(b"\0" * 64 + DATA.tobytes())
    external(path, "m.data", 64, 48)
    np.testing.assert_array_equal(load_onnx(path).initializers["w"], DATA.reshape(4, 3))


def test_load_reads_external_tensor_in_a_folder_below(path):
    (path.parent / "sub").mkdir()
    (path.parent / "sub" / "w.bin").write_bytes(DATA.tobytes())
    external(path, "sub/w.bin")
    np.testing.assert_array_equal(load_onnx(path).initializers["w"], DATA.reshape(4, 3))


@pytest.mark.parametrize("location", ["../secret.bin", "{root}/secret.bin", "a/../../secret.bin"])
def test_load_refuses_external_data_outside_the_folder(path, location):
    (path.parent.parent / "secret.bin").write_bytes(DATA.tobytes())
    external(path, location.format(root=path.parent.parent))
    _refused(path, "outside the model's directory")


def test_load_refuses_external_data_behind_a_symbolic_link(path):
    (path.parent.parent / "secret.bin").write_bytes(DATA.tobytes())
    (path.parent / "w.bin").symlink_to(path.parent.parent / "secret.bin")
    external(path, "w.bin")
    _refused(path, "outside the model's directory")


def test_load_refuses_external_data_with_two_links(path):
    (path.parent.parent / "secret.bin").write_bytes(DATA.tobytes())
    os.link(path.parent.parent / "secret.bin", path.parent / "w.bin")
    external(path, "w.bin")
    _refused(path, "a hard link")


def test_load_refuses_a_pipe(path):
    os.mkfifo(path.parent / "w.bin")
    external(path, "w.bin")
    _refused(path, "not a regular file")


@pytest.mark.parametrize(
    ("offset", "length"), [(8, 48), (2**62, 48), (-4, 48), (0, 44), (0, 2**62), ("x", 48)]
)
def test_load_refuses_an_extent_beyond_the_file(path, offset, length):
    (path.parent / "w.bin").write_bytes(DATA.tobytes())
    external(path, "w.bin", offset, length)
    _refused(path, "'w'")


def test_load_refuses_many_tensors_of_the_same_bytes(path):
    """A sparse file takes no disk space, so the total that is read from it is limited."""
    with open(path.parent / "w.bin", "wb") as file:
        file.truncate(2**29)
    external(path, "w.bin", 0, 2**29)
    proto = onnx.ModelProto.FromString(path.read_bytes())
    weight = proto.graph.initializer[0]
    del weight.dims[:]
    weight.dims.append(2**27)
    for k in range(5):
        proto.graph.initializer.add().CopyFrom(weight)
        proto.graph.initializer[-1].name = f"w{k}"
    path.write_bytes(proto.SerializeToString())
    _refused(path, "initializers and constants take")


@pytest.mark.parametrize("location", ["gone.bin", "", "."])
def test_load_refuses_missing_external_data(path, location):
    external(path, location)
    _refused(path, "'w'")


@pytest.mark.parametrize("location", ["w.bin", "sub/../w.bin", "w.bin/x", "w\0.bin", "a" * 5000])
def test_load_refuses_links_in_a_circle_and_names_that_are_none(path, location):
    (path.parent / "w.bin").symlink_to("v.bin")
    (path.parent / "v.bin").symlink_to("w.bin")
    external(path, location)
    _refused(path, "external data")
