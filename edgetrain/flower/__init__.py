"""Federated training of a Program with Flower.

`client_app` returns a ClientApp for Flower's Message API, `numpy_client` a NumPyClient. The server
starts from `initial_arrays` and writes the result with `export_onnx`. Flower is only imported when
one of these needs it: pip install 'edgetrain[flower]'.
"""

import importlib
from typing import TYPE_CHECKING, Any

_PUBLIC = {
    "client_app": "messages",
    "initial_arrays": "messages",
    "numpy_client": "numpy_client",
    "Exchange": "arrays",
    "initial_state": "arrays",
    "evaluate": "server",
    "export_onnx": "server",
    "Client": "client",
}

__all__ = [
    "Client",
    "Exchange",
    "client_app",
    "evaluate",
    "export_onnx",
    "initial_arrays",
    "initial_state",
    "numpy_client",
]

if TYPE_CHECKING:
    from .arrays import Exchange, initial_state
    from .client import Client
    from .messages import client_app, initial_arrays
    from .numpy_client import numpy_client
    from .server import evaluate, export_onnx


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'edgetrain.flower' has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_PUBLIC[name]}", __name__), name)
    globals()[name] = value
    return value
