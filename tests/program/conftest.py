"""Shared by the tests of the Program."""

from ..compiler.conftest import quick_planner

__all__ = ["quick_planner"]
