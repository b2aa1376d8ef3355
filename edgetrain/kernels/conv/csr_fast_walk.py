"""What the inner loops of sparse convolutions share; addresses are int64, strides bytes.

Rows of nonzeros are walked with a cursor each: a call takes the nonzeros from the cursor on whose
column is below `limit` and that lie before the row's end, and writes where it stopped. So panels
of fewer channels than a chunk of the pool need no pointers of their own.
"""

from ..words.prim import I8, I16, I32, I64, Storage


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


def walk(builder, columns, index: Storage, end, limit):
    """(column of nonzero j, conditions that `ahead` nonzeros from j on are to be taken)."""
    kind = I8 if index.nbytes == 1 else I16

    def column(j):
        pointer = place_at(builder, columns, j, index.nbytes)
        return builder.zext(builder.load(pointer, typ=kind, align=index.nbytes), I64)

    def conditions(ahead):
        def last(j):
            return builder.add(j, I64(ahead - 1)) if ahead > 1 else j

        return (
            lambda j: builder.icmp_signed("<", last(j), end),
            lambda j: builder.icmp_signed("<", column(last(j)), limit),
        )

    return column, conditions
