"""Loads an ONNX file as a Model (plain data); the only package that imports onnx.

load.py reads and checks the file, external.py its external tensors, decode.py turns protobuf into
plain nodes, and parameters.py separates parameters from buffers.
"""

from .load import load_onnx

__all__ = ["load_onnx"]
