"""The zoo is exported here too."""

from tests.exporters.conftest import one_torchlib

__all__ = ["one_torchlib"]
