"""The updates of optimizers beyond SGD and Adam (kernels/optimizers/update.py), one file each.

All of them: SKIP set, nothing is written but zeros to the gradients; arithmetic is float32; what is
stored in fp16 is rounded stochastically.
"""
