"""A faster planner, for tests whose models are too small to need a full search."""

import contextlib
import importlib
from collections.abc import Iterator

import pytest


@contextlib.contextmanager
def hurried(share: float = 0.01) -> Iterator[None]:
    """Within the context, every search gets `share` of its effort."""
    module = importlib.import_module("edgetrain.compiler.remat.search.anneal_search")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MILLION", int(module.MILLION * share))
        yield
