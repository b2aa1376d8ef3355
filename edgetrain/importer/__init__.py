"""ONNX file -> Model (plain data): the only place that imports onnx.

load.py reads and checks the file, external.py its external tensors, decode.py turns protobuf into
plain nodes, parameters.py tells parameters from buffers.
"""

from .load import load_onnx

__all__ = ["load_onnx"]
