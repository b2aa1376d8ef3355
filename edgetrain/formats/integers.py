"""Formats that do not depend on the precision: for positions, booleans, counters and sums."""

from ..ir.storage import Format

SUMS = Format("f64", 0, "float64", 8, floats=True)
WHOLE = (
    Format("i64", 1, "int64", 8),
    Format("i32", 3, "int32", 4),
    Format("u16", 5, "uint16", 2),
    Format("u8", 6, "uint8", 1),
)
POSITIONS = WHOLE[1]  # positions of rows and nonzeros, and class indices
