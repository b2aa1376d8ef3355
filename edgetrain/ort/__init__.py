"""Names and calls of ONNX Runtime's on-device training, on edgetrain's Programs.

`edgetrain.ort.artifacts` and `edgetrain.ort.api` stand for `onnxruntime.training.artifacts` and
`onnxruntime.training.api`; a script changes its imports. What differs: docs/ort.md.
"""

from .api import CheckpointState, LinearLRScheduler, Module, Optimizer

__all__ = ["CheckpointState", "LinearLRScheduler", "Module", "Optimizer"]
