"""Build torch's table of ONNX translations once per session: it takes half of a small export."""

import copy
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def one_torchlib() -> Iterator[None]:
    """Give every export its own shallow copy of one registry, per opset."""
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    build = ONNXRegistry.from_torchlib
    made: dict[int, ONNXRegistry] = {}

    def from_torchlib(opset_version: int = 18) -> ONNXRegistry:
        if opset_version not in made:
            made[opset_version] = build(opset_version=opset_version)
        registry = copy.copy(made[opset_version])
        registry.functions = {name: list(found) for name, found in registry.functions.items()}
        return registry

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ONNXRegistry, "from_torchlib", staticmethod(from_torchlib))
        yield
