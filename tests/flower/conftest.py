"""Flower, if it is installed; its own imports warn about click's future."""

import importlib.util
import warnings
from types import SimpleNamespace

import pytest


@pytest.fixture(scope="session")
def flower() -> SimpleNamespace:
    """Flower's modules that the tests use."""
    if importlib.util.find_spec("flwr") is None:
        pytest.skip("Flower is not installed: pip install 'edgetrain[flower]'")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import flwr.client  # noqa: F401
        import flwr.clientapp  # noqa: F401
        import flwr.serverapp.strategy as strategy
        from flwr import app
        from flwr.app.metadata import Metadata
    return SimpleNamespace(app=app, strategy=strategy, Metadata=Metadata)
