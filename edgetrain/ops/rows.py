"""Places of a table's touched rows in its gradient: see compiler/passes/touched_rows.py.

Inputs idx, outputs places and map, which is added to. attrs: rows of the table, room of the
gradient.
"""

from .registry import Op, register


def _count(values, attrs) -> dict[str, int]:
    return {"count": values["idx"].size}


register(Op("row_places", "idx -> places map", _count, cost=1, gradient="", recompute=False))
