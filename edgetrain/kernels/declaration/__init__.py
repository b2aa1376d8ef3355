"""How a kernel declares its operands: the line (spec.py), its ranges and its expressions."""
