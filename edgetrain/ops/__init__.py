"""One file per family of ops: ONNX names, shapes, gradient rules, saved values, cost.

A new op is a row or class in its family's file, or in a new one, plus a kernel and a test case.
Importing this package imports all files, which fill the tables in registry.py.
"""

import importlib
import pkgutil

for _family in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_family.name}")
