"""Maps an embedding's used rows to places in its gradient: see compiler/passes/touched_rows.py.

Input idx, outputs places and map, which is extended. attrs: rows of the table, rows of the gradient
buffer.
"""

from .registry import Op, register


def _count(values, attrs) -> dict[str, int]:
    return {"count": values["idx"].size}


register(Op("row_places", "idx -> places map", _count, cost=1, gradient="", recompute=False))
