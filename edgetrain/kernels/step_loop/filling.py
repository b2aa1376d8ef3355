"""Copies a sample, or a microbatch, into the staging bytes, from memory or through the caller."""

from ..language.calls import c_function, store_pointer
from ..language.inlining import inline
from ..language.prim import ld_i64, st_i64
from . import layout
from .floats import nbytes_of
from .staging import stage

FIELDS, SOURCE, POINTERS = layout.FIELDS, layout.SOURCE, layout.POINTERS
FILL, FILL_USER, INDICES = layout.FILL, layout.FILL_USER, layout.INDICES
RAW, RAW_STRIDE, RAW_TYPE = layout.RAW, layout.RAW_STRIDE, layout.RAW_TYPE
STAGED, STAGED_TYPE, SIZE = layout.STAGED, layout.STAGED_TYPE, layout.SIZE
BAD_FIELD, BAD_SAMPLE, BAD_VALUE = layout.BAD_FIELD, layout.BAD_SAMPLE, layout.BAD_VALUE
FROM_MEMORY, STRIDE, ASIDE = layout.FROM_MEMORY, 8 * layout.FIELD_WORDS, layout.ASIDE

# int fill(void *user, int split, int64_t sample, void *x, void *y)
call_fill = c_function("int", "void*", "int", "int64_t", "void*", "void*")


@inline
def _own_raw(field, row):
    """Address for a raw sample: a separate buffer, or the end of a staged row."""
    if ld_i64(field, ASIDE) != 0:
        return ld_i64(field, ASIDE)
    size = ld_i64(field, SIZE)
    wide = nbytes_of(ld_i64(field, STAGED_TYPE))
    end = ld_i64(field, STAGED) + (row + 1) * size * wide
    return end - size * nbytes_of(ld_i64(field, RAW_TYPE))


@inline
def _ask(plan, fields, split, sample, row):
    """Have the caller write one raw sample to the ends of the staged rows. Returns its status
    without sign, since negative numbers are the step loop's."""
    count, x = ld_i64(plan, FIELDS), _own_raw(fields, row)
    if count > 2:
        x = ld_i64(plan, POINTERS)
        for k in range(count - 1):
            store_pointer(x, k, _own_raw(fields + k * STRIDE, row))
    y = _own_raw(fields + (count - 1) * STRIDE, row)
    return abs(call_fill(ld_i64(plan, FILL), ld_i64(plan, FILL_USER), split, sample, x, y))


@inline
def fill_row(plan, fields, split, sample, row):
    """Stage `sample` as row `row` of every field; returns 0, BAD_VALUE or the callback's status."""
    memory = ld_i64(plan, SOURCE) == FROM_MEMORY
    if not memory:
        status = _ask(plan, fields, split, sample, row)
        if status != 0:
            return status
    for k in range(ld_i64(plan, FIELDS)):
        field = fields + k * STRIDE
        raw = _own_raw(field, row)
        if memory:
            raw = ld_i64(field, RAW) + sample * ld_i64(field, RAW_STRIDE)
        if stage(field, row, raw) == 0:
            st_i64(plan, BAD_FIELD, k)
            st_i64(plan, BAD_SAMPLE, sample)
            return BAD_VALUE
    return 0


@inline
def fill_microbatch(plan, split, count):
    """Have the caller stage the samples listed in INDICES; returns its status."""
    fill, user, indices = ld_i64(plan, FILL), ld_i64(plan, FILL_USER), ld_i64(plan, INDICES)
    return abs(call_fill(fill, user, split, count, indices, 0))
