"""CUDA devices available to torch."""

import torch


def first_cuda_name() -> str | None:
    """Name of the first CUDA device; None if torch finds none."""
    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else None
