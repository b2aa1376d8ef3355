"""Metadata of a stored model, as text by key."""

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .protobuf import Message

METADATA = 14  # field of a ModelProto
# Class names of the trained model: a JSON list in the order of the outputs.
LABELS = "edgetrain.labels"


def text_of(model: "Message", key: str) -> str:
    """An entry of a model; "" if missing."""
    return next((m.text(2) for m in model.messages(METADATA) if m.text(1) == key), "")


def labels_of(onnx: bytes) -> tuple[str, ...] | None:
    """The class names in a stored model; None if it has no usable ones."""
    if LABELS.encode() not in onnx:  # in most Programs, so devices parse nothing
        return None
    from .protobuf import Message

    try:
        result = json.loads(text_of(Message(onnx), LABELS) or "null")
    except (ValueError, KeyError, TypeError, IndexError, OverflowError, RecursionError):
        return None
    fit = isinstance(result, list) and result and all(isinstance(name, str) for name in result)
    return tuple(result) if fit and len(set(result)) == len(result) else None
