"""The planner's loops: a small part of Python, compiled without numba for a quick first plan."""
