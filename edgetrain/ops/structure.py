"""How an op's operands relate to each other; passes check this instead of the op's name."""

from enum import Enum


class Structure(Enum):
    """Kinds of relations; ops without one combine elements in a way of their own."""

    SAME = "all operands have as many elements, in the same order"
    VIEW = "the same bytes in another shape"
    BROADCAST = "operands broadcast to the output"
    WALK = "strided walks bring elements to their places: attrs['moves']"
    PRODUCT = "rows times columns: attrs ta, tb"
    TAKE = "rows of the first input by indices, the last: attrs['axis']"
    ALONG = "elements along attrs['axis'] are taken together"
    ROWS = "each row of attrs['n'] elements by itself, and its statistics"
    REDUCED = "attrs['axes'] are reduced"
    RECURRENT = "a sequence, step by step: attrs['made']"
