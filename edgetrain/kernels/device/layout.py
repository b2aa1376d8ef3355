"""Words of a bundle's memory, and of the table of constants (ROM) that its object holds.

Memory is what the caller hands over: words of 8 bytes that are here, the plan block
(step_loop/layout.py), what its addresses point to, then the arena. Every entry of ROM has 8 bytes,
addresses too; so have those of ADDRESSES, while the other tables are of 4 bytes. Offsets are in
bytes from the first byte of the memory.
"""

from ...formats import BLOCKED
from ..step_loop.layout import TYPES

# Memory, in words.
PLAN = 0  # address of the plan block; with WHOLE the operands of `drive_train`
WHOLE = 1
RATE_CODE = 2  # one instruction: number of the schedule, 4, control block, size, patience, cooldown
BUFFER = 8  # BLOCK bytes
WORDS = 16  # the plan block follows
BLOCK = 64  # bytes that are read or written of a store at least, and whose multiple all are

# ROM, in words.
MEMORY = 0  # bytes
ARENA, CTL = 1, 2  # offsets
LITERALS, LITERAL_COUNT = 3, 4  # pairs (offset, 32 bits)
RELATIVES, RELATIVE_COUNT = 5, 6  # pairs (offset, offset whose address stands there)
ADDRESSES, ADDRESS_COUNT = 7, 8  # pairs (offset, address of something constant)
INITS, INIT_COUNT = 9, 10  # triples (place in the initial values, offset, bytes)
STATES, STATE_COUNT = 11, 12  # triples (offset, bytes, offset in a stored state); the last: ctl
NAMES, NAMES_NBYTES = 13, 14  # the stored table of names; bytes are a multiple of BLOCK
STORED_NBYTES = 15  # of a stored state behind its header
DIGEST = 16  # two words: which Programs may read each other's stored states
# Triples (offset, elements, storage by its number in VALUE_TYPES): what may be got and set.
VALUES, VALUE_COUNT = 18, 19
TRAIN, EVALUATE = 20, 21  # entries of `drive_train` and `drive_evaluate`
TARGET, TARGET_NBYTES = 22, 23  # offset of the targets of the eval tape
INPUTS = 24  # that `predict` takes, so no sample weights
# Samples that a loss or an output takes together, else 1: what fills them up would be in it.
MEASURED, PREDICTED = 25, 26
# Schedules by number: SCHEDULE_WORDS words each.
SCHEDULES, SCHEDULE_COUNT = 27, 28
ROM_WORDS = 29

# Words of a bundle with several lengths, at the plan block's LENGTHS: the ROM of the tapes in use
# and their number; the caller's `fill`; of the minibatch, or of what is evaluated: number of its
# length's first sample, first place in the epoch, samples, epoch; sums over what was evaluated
# (TERM_WORDS for the only loss or the sum of several, then for each); samples by length, of
# training then of evaluation.
USED_ROM, USED, CALLER, CALLER_USER, FIRST, PLACE, COUNT, EPOCH, SUMS = range(9)
COUNTS = SUMS + 4 * 6
# Rows of the table of lengths, the shortest first, 8 bytes an entry: its positions, samples of a
# minibatch, ROM, address of its constants, where weights of several losses lie, and their bytes.
# Tables of these ROM hold what differs between lengths.
ROW_LENGTH, ROW_MINIBATCH, ROW_ROM, ROW_CONSTANTS, ROW_WEIGHTS, ROW_WEIGHTS_NBYTES = range(6)
ROW_WORDS = 6

# The first schedules: their fields in the caller's struct and their limits are their own.
FIRST_SCHEDULES = 8
# Words of a schedule: whether the run must be longer than warm-up, then least and most of three
# whole numbers, and of three float64.
NEEDS_TOTAL, WHOLE_BOUNDS, REAL_BOUNDS = 0, 1, 7
SCHEDULE_WORDS = 13

VALUE_TYPES = TYPES
BLOCKED_FROM, BLOCKED_TO = TYPES.index(BLOCKED[0]), TYPES.index(BLOCKED[-1])

# What functions return besides step_loop/layout.py's DONE, MORE and BAD_VALUE.
BUSY = -2  # a minibatch is half done
NOTHING = -3  # neither slot holds a good state of this Program
FAILED = -4  # the store said so, or does not give back what was written
REFUSED = -5  # an argument
BROKEN = -7  # with fused updates: weights have moved by a step that failed; a state must be loaded

HALF = -1  # a phase of the plan block: as BROKEN says
RETURNS = 25  # failed steps of a run with fused updates that end it

# Header of a stored state: words of BLOCK bytes. Sums are over what stands before, then the rest.
MAGIC = 0x0000_0001_5354_4445  # "EDTS", version 1
SEQUENCE, STORED_DIGEST, LENGTH, ROWS, CRC = 1, 2, 4, 5, 7
# A row of the table of names is u32 hash of the name, offset, bytes, number of its storage.

# Where the control block keeps whole numbers of a schedule: from RATE + SAVED_WINDOWS the second
# (patience) and the third (cooldown), from RATE + SAVED_RATE the schedule's number and the first
# (step_size, timescale, window, or how many milestones stand at SEEN). Others are at RATE.
SAVED_WINDOWS, SAVED_RATE = 3, 5
DROPS = 8  # milestones at most
LONG = 10_000  # timescale of inverse_sqrt where neither it nor a warm-up says one

# Words of the struct that says a schedule: int64, from GIVEN_LR on float64.
GIVEN_KIND, GIVEN_TOTAL, GIVEN_WARMUP, GIVEN_SIZE = 0, 1, 2, 3
GIVEN_PATIENCE, GIVEN_COOLDOWN, GIVEN_DROPS = 4, 5, 6
GIVEN_LR, GIVEN_NUMBERS, GIVEN_CYCLE = 6 + DROPS, 7 + DROPS, 10 + DROPS
GIVEN_WORDS = 13 + DROPS
