"""What is held out, what is evaluated, and which values are checked before training."""

import os

import numpy as np
import pytest

from edgetrain.data.order.validation import Division
from edgetrain.data.registry import open_data, open_evaluation
from edgetrain.errors import DataError, UsageError

from . import writers as w

X = np.arange(600, dtype=np.float32).reshape(300, 2)
Y = np.arange(300) % 10
SPLIT = {"x_train": X, "y_train": Y, "x_test": X[:30], "y_test": Y[:30]}


def values(source):
    return set(w.read_all(source)["x"][:, 0].tolist())


@pytest.mark.parametrize("nothing", [None, 0, 0.0])
def test_nothing_is_held_out_unasked(nothing):
    division = Division((X, Y), nothing)
    assert (division.train.n, division.held_out, division.evaluation()) == (300, 0, None)
    assert "all 300 samples are for training" in division.describe(True)
    assert division.describe(False) == ""


def test_a_fraction_is_held_out_of_the_training_samples():
    division = Division((X, Y), 0.2)
    test = division.evaluation()
    assert (division.train.n, division.held_out, test.n) == (240, 60, 60)
    assert values(division.train) | values(test) == set(X[:, 0].tolist())
    assert not values(division.train) & values(test)
    assert division.describe(True).startswith("held out 60 of 300 samples (20 %) for evaluation")


def test_the_datas_own_test_split_is_used_where_nothing_else_is_asked_for():
    division = Division(SPLIT)
    assert (division.train.n, division.evaluation().n, division.held_out) == (300, 30, 0)
    assert division.describe(True) == ""
    division = Division(SPLIT, 0.1)
    assert (division.train.n, division.evaluation().n, division.held_out) == (270, 30, 30)
    assert not values(division.train) & values(division.evaluation())


@pytest.mark.parametrize(
    ("validation", "n"),
    [((X[:50], Y[:50]), 50), (SPLIT, 30), (open_data((X[:7], Y[:7])), 7), ("digits", 360)],
)
def test_other_data_may_be_what_is_evaluated(validation, n):
    division = Division((X, Y), validation)
    assert (division.train.n, division.evaluation().n, division.held_out) == (300, n, 0)


@pytest.mark.parametrize("validation", [1, 60, -0.1, 1.0, float("nan"), float("inf"), True])
def test_numbers_that_are_no_fraction_are_refused(validation):
    with pytest.raises(UsageError, match="from 0 .* to below 1"):
        Division((X, Y), validation)


def test_one_sample_is_enough_to_train_on_and_too_few_to_divide():
    assert Division((X[:1], Y[:1])).train.n == 1
    with pytest.raises(DataError, match="hold out 0.5 of 1 samples?"):
        Division((X[:1], Y[:1]), 0.5)


def test_an_evaluation_leaves_no_sample_out():
    assert open_evaluation((X, Y)).n == 300
    assert open_evaluation(SPLIT).n == 30 and open_evaluation(SPLIT, split="train").n == 300
    source = open_data(SPLIT)
    assert open_evaluation(source) is source and open_evaluation("digits").n == 360


def arrays(folder, y):
    return X, y


def npz(folder, y):
    np.savez(folder / "a.npz", x=X, y=y)
    return f"npz:{folder}/a.npz"


def npy_fortran(folder, y):
    np.save(folder / "x.npy", X)
    np.save(folder / "y.npy", np.asfortranarray(np.stack([y, y], 1)))
    return f"npy:{folder}"


def csv(folder, y):
    w.write_csv(folder / "a.csv", X, y, header=False)
    return f"csv:{folder}/a.csv"


def mnist(folder, y):
    w.write_mnist(folder)
    (folder / "train-labels-idx1-ubyte").write_bytes(w.idx_bytes(y[-20:].astype(np.uint8)))
    return f"mnist:{folder}"


def cifar10(folder, y):
    w.write_cifar10(folder, n=60)
    records = np.fromfile(folder / "data_batch_5.bin", np.uint8).reshape(60, -1)
    records[:, 0] = y[-60:]
    records.tofile(folder / "data_batch_5.bin")
    return f"cifar10:{folder}"


CASES = [arrays, npz, npy_fortran, csv, mnist, cifar10]


@pytest.mark.parametrize("make", CASES, ids=lambda case: case.__name__)
@pytest.mark.parametrize("fraction", [0.0, 0.2])
def test_a_wrong_label_is_found_ahead(tmp_path, make, fraction):
    y = Y.copy()
    y[-3] = 10
    source = Division(make(tmp_path, y), fraction).train
    source.check_limits({"y": 10})
    with pytest.raises(DataError, match=r"(sample|line) \d+: .*value 10.* from 0 to 9"):
        source.check_values()


@pytest.mark.parametrize("make", CASES[:4], ids=lambda case: case.__name__)
def test_labels_are_looked_at_once_for_each_limit(tmp_path, make, monkeypatch):
    source, scans = open_data(make(tmp_path, Y)), []
    scan = source.scan
    monkeypatch.setattr(source, "scan", lambda *asked: scans.append(asked) or scan(*asked))
    for limit in (11, 11, 10, 10):
        source.check_limits({"y": limit})
        source.check_values()
    assert len(scans) == 2
    source.check_limits({"y": 9})
    with pytest.raises(DataError, match="from 0 to 8"):
        source.check_values()


def test_ignored_targets_and_token_ids_are_looked_at_ahead():
    source = open_data({"ids": np.array([[1, 2], [3, 4]]), "y": np.array([-100, 3])})
    source.check_limits({"y": 4, "ids": 5}, ignore_index=-100)
    source.check_values()
    source.check_limits({"ids": 4}, ignore_index=-100)
    with pytest.raises(DataError, match="sample 1: field 'ids': value 4"):
        source.check_values()


@pytest.mark.parametrize("other", ["shape", "dtype", "cut", "kind", "fifo"])
def test_samples_in_files_of_their_own_are_looked_at_ahead(tmp_path, other):
    w.write_folders(tmp_path, X[:40], Y[:40])
    path = tmp_path / "class9" / "039.npy"
    source = open_data(f"dir:{tmp_path}")
    source.check_values()
    path.unlink()
    if other == "shape":
        np.save(path, X[0, :1])
    elif other == "dtype":
        np.save(path, X[0].astype("f8"))
    elif other == "cut":
        np.save(path, X[0])
        path.write_bytes(path.read_bytes()[:-1])
    elif other == "kind":
        path.mkdir()
    else:
        os.mkfifo(path)
    source = open_data(f"dir:{tmp_path}")
    with pytest.raises(DataError, match=r"039.npy: .*expected"):
        source.check_values()


def test_more_than_can_be_looked_at_in_seconds_is_left_to_the_reading(tmp_path, monkeypatch):
    monkeypatch.setattr("edgetrain.data.sources.row_source._AHEAD_NBYTES", 100)
    source = open_data((X, Y))
    source.check_limits({"y": 5})
    source.check_values()
    with pytest.raises(DataError, match="from 0 to 4"):
        w.read_all(source)
