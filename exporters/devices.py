"""The devices that torch can use here."""

import torch


def first_cuda_name() -> str | None:
    """The first CUDA device's name; None if torch sees none."""
    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else None
