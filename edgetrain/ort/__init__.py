"""ONNX Runtime's on-device training API, implemented with edgetrain's Programs.

`edgetrain.ort.artifacts` and `edgetrain.ort.api` replace `onnxruntime.training.artifacts` and
`onnxruntime.training.api`; in a script, only the imports change. Differences: docs/ort.md.
"""

from .api import CheckpointState, LinearLRScheduler, Module, Optimizer

__all__ = ["CheckpointState", "LinearLRScheduler", "Module", "Optimizer"]
