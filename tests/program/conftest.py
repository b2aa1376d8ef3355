"""Fixtures shared by the Program's tests."""

from ..compiler.conftest import quick_planner

__all__ = ["quick_planner"]
