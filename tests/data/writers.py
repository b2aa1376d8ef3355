"""Writes tiny data sets in every format; all of them contain what `samples` returns."""

import gzip

import numpy as np


def samples(n=20, shape=(3, 4), classes=10, seed=0):
    """u8 images [n, *shape] and u8 labels [n]; every class occurs if n allows it."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 256, (n, *shape)).astype(np.uint8)
    return x, (np.arange(n) * 7 % classes).astype(np.uint8)


def idx_bytes(array):
    """A u8 array in the idx format."""
    head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    return head + array.tobytes()


def write_mnist(folder, gz=False, n=20, shape=(4, 4)):
    """Write the four files; train and test use different seeds."""
    found = {}
    for seed, (split, prefix) in enumerate((("train", "train"), ("test", "t10k"))):
        x, y = samples(n, shape, seed=seed)
        found[split] = x, y
        for kind, array in (("images-idx3", x), ("labels-idx1", y)):
            path = folder / f"{prefix}-{kind}-ubyte{'.gz' if gz else ''}"
            path.write_bytes(gzip.compress(idx_bytes(array)) if gz else idx_bytes(array))
    return found


def write_cifar10(folder, n=4):
    """Write five training files of n records and a test file."""
    names = [f"data_batch_{k}.bin" for k in range(1, 6)] + ["test_batch.bin"]
    parts = []
    for seed, name in enumerate(names):
        x, y = samples(n, (3, 32, 32), seed=seed)
        np.concatenate([y[:, None], x.reshape(n, -1)], axis=1).tofile(folder / name)
        parts.append((x, y))
    train = tuple(np.concatenate(arrays) for arrays in zip(*parts[:5], strict=True))
    return {"train": train, "test": parts[5]}


def write_csv(path, x, y, header=True, separator=","):
    """Write rows of x, then y."""
    lines = [separator.join([f"c{k}" for k in range(x.shape[1])] + ["label"])] if header else []
    lines += [separator.join(map(str, [*row, label])) for row, label in zip(x, y, strict=True)]
    path.write_text("\n".join(lines) + "\n")


def write_folders(folder, x, y):
    """Write one folder per class; return the labels in reading order."""
    for row, (image, label) in enumerate(zip(x, y, strict=True)):
        place = folder / f"class{label}"
        place.mkdir(parents=True, exist_ok=True)
        np.save(place / f"{row:03d}.npy", image)
    return np.argsort(y, kind="stable")


def read_all(source, dtype=np.float32, **how):
    """Every sample of a source, in order."""
    out = {
        name: np.zeros((source.n, *field.shape), dtype if name == "x" else np.int64)
        for name, field in source.fields.items()
    }
    source.fill(np.arange(source.n), out, **how)
    return out
