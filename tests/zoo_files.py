"""ONNX files of the zoo, exported once per test run."""

from pathlib import Path

import torch

from edgetrain.exporters import export_torch
from examples.zoo import ZOO
from examples.zoo.spec import Scale

from .kept import kept


def zoo_file(name: str, scale: Scale = "small") -> Path:
    """The file of a net with weights drawn from seed 0; torch's random state is not changed."""
    entry = ZOO[name]

    def write(path: Path) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            module = entry.build(scale)
            export_torch(module, entry.example_inputs(2, scale), path, batch_dim=entry.batch_dim)

    return kept(f"{name}-{scale}.onnx", write)
