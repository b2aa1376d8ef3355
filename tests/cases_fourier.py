"""Op cases: discrete Fourier transforms."""

import numpy as np
import torch

from .op_case import BATCH, C, Case, X, floats, ints


def _complex(x: torch.Tensor) -> torch.Tensor:
    return torch.complex(x[..., 0], x[..., 1] if x.shape[-1] == 2 else torch.zeros_like(x[..., 0]))


def _transform(axis: int, inverse: bool = False, half: bool = False):
    """The meaning of DFT; the length and the axis may be inputs."""

    def meaning(x, length=None, _=None):
        count = None if length is None else int(np.ravel(length)[0])
        made = (torch.fft.ifft if inverse else torch.fft.fft)(_complex(x), count, axis)
        if half:
            made = made.narrow(axis, 0, made.shape[axis] // 2 + 1)
        return torch.view_as_real(made)

    return meaning


def _back(length: int):
    """The meaning of the inverse one-sided DFT of this length."""
    return lambda x, _=None: torch.fft.irfft(_complex(x), length, 1)[..., None]


def _dft_cases() -> list[Case]:
    real, pairs = X((BATCH, 5, 3, 1)), X((BATCH, 4, 5, 2))
    half_back = {"onesided": 1, "inverse": 1}
    return [
        Case("DFT", "real", [real], _transform(1)),
        Case("DFT", "an even half", [real, None, C(2)], _transform(2, half=True),
             {"onesided": 1}, 20),
        Case("DFT", "an odd half", [real], _transform(1, half=True), {"onesided": 1}),
        Case("DFT", "complex", [pairs], _transform(2), {"axis": 2}),
        Case("DFT", "last axis of opset 20", [pairs], _transform(2), {}, 20),
        Case("DFT", "axis from the end", [pairs, None, C(-3)], _transform(1), {}, 20),
        Case("DFT", "inverse", [pairs], _transform(1, True), {"inverse": 1}),
        Case("DFT", "back from an even half", [pairs], _back(6), half_back),
        Case("DFT", "back from an odd half", [pairs, C(7)], _back(7), half_back),
        Case("DFT", "longer", [pairs, C(7)], _transform(1)),
        Case("DFT", "shorter", [real, C(3)], _transform(1)),
    ]  # fmt: skip


def _frames(length: int, half: bool = True):
    """The meaning of STFT with this frame length."""

    def meaning(x, step, window=None, _=None):
        parts = _complex(x).unfold(1, length, int(np.ravel(step)[0]))
        if window is not None:
            parts = parts * torch.from_numpy(window).double()
        made = torch.fft.fft(parts)
        return torch.view_as_real(made[..., : length // 2 + 1] if half else made)

    return meaning


def _stft_cases() -> list[Case]:
    signal, pairs = X((BATCH, 20, 1)), X((BATCH, 11, 2))
    window = floats(np.hanning(9)[:8])
    return [
        Case("STFT", "a window", [signal, C(3), window], _frames(8)),
        Case("STFT", "a window and its length", [signal, C(4), window, C(8)], _frames(8)),
        Case("STFT", "no window", [signal, C(2), None, C(5)], _frames(5), {"onesided": 1}),
        Case("STFT", "all bins", [signal, C(6), window], _frames(8, False), {"onesided": 0}),
        Case("STFT", "complex", [pairs, ints(3), None, ints(4)], _frames(4, False),
             {"onesided": 0}, reference=False),
    ]  # fmt: skip


CASES = [*_dft_cases(), *_stft_cases()]
