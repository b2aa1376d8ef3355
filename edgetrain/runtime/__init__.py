"""The part that runs on a device: arena, tape executor, trainer, checkpoints.

It does not import onnx, scipy or the compiler; a Program and compiled kernels are enough.
"""
