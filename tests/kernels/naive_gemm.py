"""Naive matrix product with arbitrary strides, in float64."""

import numpy as np
from numpy.lib.stride_tricks import as_strided


def view(flat: np.ndarray, shape, strides) -> np.ndarray:
    """Return a float64 copy of the elements that the strides (in elements) address."""
    strides = [s * flat.itemsize for s in strides]
    return as_strided(flat, shape, strides).astype(np.float64)


def gemm(v: dict, alpha: float = 1.0) -> np.ndarray:
    """Return the product [z1, z2, m, n] from a call's operands, ignoring old values of c."""
    z1, z2, m, n, k2, k = (v[name] for name in ("z1", "z2", "m", "n", "k2", "k"))
    a = view(v["a"], (z1, z2, m, k2, k), [v[s] for s in ("az1", "az2", "am", "ak2", "ak")])
    b = view(v["b"], (z1, z2, n, k2, k), [v[s] for s in ("bz1", "bz2", "bn", "bk2", "bk")])
    out = alpha * np.einsum("xyiqk,xyjqk->xyij", a, b)
    return out if v.get("bias") is None else out + v["bias"].astype(np.float64)
