"""What the inner loops of sparse convolutions share; addresses are int64, strides bytes.

Rows of nonzeros are walked with a cursor each: a call takes the nonzeros from the cursor on whose
column is below `limit` and that lie before the row's end, and writes where it stopped. So panels
of fewer channels than a chunk of the pool need no pointers of their own.
"""

from ..language.prim import I8, I16, I32, I64, POINTER, Storage


def pointers(builder, *addresses):
    """Addresses as pointers."""
    return [builder.inttoptr(address, POINTER) for address in addresses]


def place_at(builder, pointer, index, nbytes):
    """Pointer to element `index` (int64) of `nbytes` bytes."""
    step = builder.mul(index, I64(nbytes)) if nbytes != 1 else index
    return builder.gep(pointer, [step], source_etype=I8)


def load_i32(builder, pointer):
    """An int32 as int64."""
    return builder.sext(builder.load(pointer, typ=I32, align=4), I64)


def while_loop(builder, start, values, conditions, body):
    """while all conditions(j): j, values = body(j, values). Returns (j, values)."""
    before = builder.block
    head, inside, after = (builder.append_basic_block(name) for name in ("head", "body", "end"))
    builder.branch(head)
    builder.position_at_end(head)
    j = builder.phi(I64)
    j.add_incoming(start, before)
    carried = []
    for value in values:
        phi = builder.phi(value.type)
        phi.add_incoming(value, before)
        carried.append(phi)
    for condition in conditions:
        more = builder.append_basic_block("more")
        builder.cbranch(condition(j), more, after)
        builder.position_at_end(more)
    builder.branch(inside)
    builder.position_at_end(inside)
    following, new = body(j, list(carried))
    j.add_incoming(following, builder.block)
    for phi, value in zip(carried, new, strict=True):
        phi.add_incoming(value, builder.block)
    builder.branch(head)
    builder.position_at_end(after)
    return j, carried


class Row:
    """Row o of a `Walk` (conv/records.py): its nonzeros from `start` on."""

    def __init__(self, builder, walk, columns, index: Storage, o) -> None:
        cursors, ends, columns = pointers(builder, walk.cursors, walk.ends, columns)
        self.builder, self.columns, self.index, self.limit = builder, columns, index, walk.limit
        self.start = load_i32(builder, place_at(builder, cursors, o, 4))
        end = place_at(builder, ends, builder.mul(o, walk.ends_stride), 1)
        self.end = load_i32(builder, end)

    def column(self, j):
        """Column of nonzero j."""
        nbytes = self.index.nbytes
        pointer = place_at(self.builder, self.columns, j, nbytes)
        kind = I8 if nbytes == 1 else I16
        return self.builder.zext(self.builder.load(pointer, typ=kind, align=nbytes), I64)

    def more(self, ahead):
        """Conditions of a loop that takes `ahead` nonzeros at a time."""

        def last(j):
            return self.builder.add(j, I64(ahead - 1)) if ahead > 1 else j

        return (
            lambda j: self.builder.icmp_signed("<", last(j), self.end),
            lambda j: self.builder.icmp_signed("<", self.column(last(j)), self.limit),
        )


def for_rows(builder, walk, body):
    """for o in range(rows): stops[o] = body(o)."""
    (stops,) = pointers(builder, walk.stops)

    def row(o, _):
        stop = body(o)
        builder.store(builder.trunc(stop, I32), place_at(builder, stops, o, 4), align=4)
        return builder.add(o, I64(1)), []

    while_loop(builder, I64(0), [], [lambda o: builder.icmp_signed("<", o, walk.rows)], row)
