"""The plan block: int64 words outside the arena that describe tapes, data and caller.

Whoever runs a Program creates one for the step loop, with addresses, sizes and callbacks. Its only
training state is the position in a minibatch that runs piece by piece; all other state is in the
control block (control.py), in the arena.
"""

from ...formats import BLOCKED, FLOATS

# Addresses; 0: none.
CTL = 0  # control block
RUN_TAPE = 1  # entry of the interpreter
RUN = 2  # void run(void *user, void *tape): runs a tape with all workers; 0: only this thread
RUN_USER = 3
RATE, MICRO, UPDATE, REWIRE, EVAL = 4, 5, 6, 7, 8  # operands of `run_tape` for each tape; 0: empty
THREADS = 5  # word after those operands: number of threads that the tape is worth
STRIDES = 9  # address of a word for each kernel of the table: see SPLIT_NONE

# Sizes.
MINIBATCH, MICROBATCH = 10, 11  # samples
TARGETS_PER_SAMPLE = 12
SAMPLES, EVAL_SAMPLES = 13, 14  # number of training and of evaluation samples

# Data. A field is FIELD_WORDS words; the last one is the target.
SOURCE = 15  # one of FROM_MEMORY, FROM_SAMPLES, FROM_MICROBATCHES
FILL, FILL_USER = 16, 17
FIELDS = 18  # number of fields
TRAIN_FIELDS, EVAL_FIELDS = 19, 20  # addresses of their descriptions
INDICES = 21  # int64[MICROBATCH]: samples of the microbatch that a callback fills
POINTERS = 22  # void *[FIELDS - 1]: buffers for several inputs of one sample

# Ranges to zero: pairs (address, bytes), and their number.
ZERO, ZEROS = 23, 24  # accumulators of a minibatch that is discarded

LENGTHS = 25  # address of a multi-length bundle's own words (kernels/device/layout.py)

# Output of `predict`: value in the arena, its storage, elements of a sample, float32 array to fill.
OUTPUT, OUTPUT_TYPE, OUTPUT_SIZE, PREDICTIONS = 27, 28, 29, 30

# Written by the step loop.
STATUS = 32  # DONE, MORE, or the callback's status without its sign
PHASE, ROW, CODE, PART = 33, 34, 35, 36  # where `poll` continues
PARTS = 37  # set by the caller: `poll` runs an instruction in at most this many parts
BAD_FIELD, BAD_SAMPLE = 38, 39  # field and sample of a value outside its limits
ARGUMENTS = 40  # operands of the part that is running
WORDS = 168

DONE, MORE, BAD_VALUE = 0, -6, -1  # others below 0: device/layout.py; above 0: a callback's

FROM_MEMORY = 0  # rows at RAW + sample * RAW_STRIDE
FROM_SAMPLES = 1  # int fill(void *user, int split, int64_t sample, void *x, void *y)
FROM_MICROBATCHES = 2  # the same, with INDICES as x and the number of samples as `sample`

TRAIN_SPLIT, EVAL_SPLIT = 1, 0

# In the table of STRIDES: index of the operand word with the stride of the workspace, or one of
# these: the instruction has no workspace, or cannot be split.
STRIDE_NONE, SPLIT_NONE = -1, -2

# Words of a field.
STAGED = 0  # address of the microbatch in the arena
STAGED_TYPE = 1
SIZE = 2  # elements of a sample
RAW = 3  # address of the first raw sample; not used with FROM_SAMPLES
RAW_TYPE = 4
RAW_STRIDE = 5  # bytes from one raw sample to the next
FACTOR, SHIFT = 6, 7  # addresses of float32[CHANNELS]; 0: values are not scaled
CHANNELS, INNER = 8, 9  # element e has the factor of channel (e / INNER) % CHANNELS
LIMIT = 10  # integers must be in [0, LIMIT), floats at least 0; 0: no limit
IGNORED = 11  # an integer that is allowed whatever LIMIT is, if CHECK_IGNORED is 1
CHECK_IGNORED = 12
ASIDE = 13  # address of a callback's buffer for raw samples wider than staged ones, or 0
FIELD_WORDS = 16

RAW_TYPES = ("f32", "f16", "i32", "i64", "u8")  # types that a caller may pass, as in C headers
# Storages by their number in a field and in a bundle's stored states; add new ones at the end.
TYPES = RAW_TYPES + BLOCKED + tuple(name for name in FLOATS if name not in RAW_TYPES)
