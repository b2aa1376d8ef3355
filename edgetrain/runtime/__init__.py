"""What runs on the device: the arena, the executor of tapes, the trainer, checkpoints.

Nothing here imports onnx, scipy or the compiler; a Program and compiled kernels are enough.
"""
