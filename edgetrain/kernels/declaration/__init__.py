"""How a kernel declares its operands: the declaration line (spec.py), ranges and expressions."""
