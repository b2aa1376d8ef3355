"""Exporting to and comparing with torch and onnx.

    export_torch    a torch module -> an ONNX file that can be trained

Names are imported on first use, so importing this package loads neither torch nor onnx. The folder
is at the top of the tree; edgetrain/exporters is a link to it.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "ExportWarning": "edgetrain.exporters.torch_export",
    "export_torch": "edgetrain.exporters.torch_export",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - names resolve lazily, through __getattr__


def __getattr__(name: str) -> Any:
    """Import the module that defines `name` on first use (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'exporters' has no attribute {name!r}")
    try:
        return getattr(import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        from edgetrain.units.packages import explained

        raise explained(error) from error
