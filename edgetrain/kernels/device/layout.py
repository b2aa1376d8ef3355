"""Words of a bundle's memory, and of the table of constants (ROM) in its object.

The caller provides the memory. It consists of the 8-byte words defined here, the plan block
(step_loop/layout.py), the data that its addresses point to, and the arena. Every entry of ROM has 8
bytes, addresses too, and so have the entries of ADDRESSES; the other tables have 4-byte entries.
Offsets are in bytes from the start of the memory.
"""

from ...formats import BLOCKED
from ..step_loop.layout import TYPES

# Memory, in words.
PLAN = 0  # address of the plan block; PLAN and WHOLE are the operands of `drive_train`
WHOLE = 1  # 0: the next piece of a minibatch, 1: all of it
EVALUATED = 2  # the same word: the last samples were those of an evaluation
RATE_CODE = 2  # one instruction: number of the schedule, 4, control block, size, patience, cooldown
BUFFER = 8  # BLOCK bytes
WORDS = 16  # the plan block follows
BLOCK = 64  # reads and writes of a store are multiples of this many bytes

# ROM, in words.
MEMORY = 0  # bytes
ARENA, CTL = 1, 2  # offsets
LITERALS, LITERAL_COUNT = 3, 4  # pairs (offset, 32 bits)
RELATIVES, RELATIVE_COUNT = 5, 6  # pairs (offset, offset whose address is stored there)
ADDRESSES, ADDRESS_COUNT = 7, 8  # pairs (offset, address of a constant)
INITS, INIT_COUNT = 9, 10  # triples (place in the initial values, offset, bytes)
STATES, STATE_COUNT = 11, 12  # triples (offset, bytes, offset in a stored state); the last: ctl
NAMES, NAMES_NBYTES = 13, 14  # the stored table of names; bytes are a multiple of BLOCK
STORED_NBYTES = 15  # of a stored state after its header
DIGEST = 16  # two words, equal for Programs that may read each other's stored states
# Triples (offset, elements, storage by its number in VALUE_TYPES): values that can be read and set.
VALUES, VALUE_COUNT = 18, 19
TRAIN, EVALUATE = 20, 21  # entries of `drive_train` and `drive_evaluate`
TARGET, TARGET_NBYTES = 22, 23  # offset of the targets of the eval tape
INPUTS = 24  # number of inputs that `predict` takes, without sample weights
# Samples that a loss or an output combines, else 1: padding would affect the result.
MEASURED, PREDICTED = 25, 26
# Schedules from number FIRST_SCHEDULES on, SCHEDULE_WORDS words each; how many there are in all.
SCHEDULES, SCHEDULE_COUNT = 27, 28
ROM_WORDS = 29

# Words of a bundle with several lengths, at the plan block's LENGTHS: the ROM of the current tapes
# and their number; the caller's `fill` and its argument; for the minibatch or the evaluation: index
# of its length's first sample, first place in the epoch, samples, epoch; sums over the evaluation
# (TERM_WORDS for the only loss or the sum of several, then for each loss); samples by length, first
# for training, then for evaluation.
USED_ROM, USED, CALLER, CALLER_USER, FIRST, PLACE, COUNT, EPOCH, SUMS = range(9)
COUNTS = SUMS + 4 * 6
# Rows of the table of lengths, shortest first, 8 bytes per entry: positions, samples of a
# minibatch, ROM, address of its constants, offset of the weights of several losses, their bytes;
# from ROW_EACH on, for each loss: the targets that a sample counts as if the loss is a mean over
# samples, else 1.
# The tables of these ROMs contain only what differs between lengths.
ROW_LENGTH, ROW_MINIBATCH, ROW_ROM, ROW_CONSTANTS, ROW_WEIGHTS, ROW_WEIGHTS_NBYTES = range(6)
ROW_EACH = 6
ROW_WORDS = ROW_EACH + 5

# The first schedules have their own fields in the caller's struct, and their own limits.
FIRST_SCHEDULES = 8
# Words of a schedule: whether the run must be longer than warm-up, then the bounds (least, most) of
# three integers, and of three float64.
NEEDS_TOTAL, WHOLE_BOUNDS, REAL_BOUNDS = 0, 1, 7
SCHEDULE_WORDS = 13

VALUE_TYPES = TYPES
BLOCKED_FROM, BLOCKED_TO = TYPES.index(BLOCKED[0]), TYPES.index(BLOCKED[-1])

# Status codes of functions, besides step_loop/layout.py's DONE, MORE and BAD_VALUE.
BUSY = -2  # a minibatch is half done
NOTHING = -3  # neither slot has a good state of this Program
FAILED = -4  # the store reported an error, or does not return what was written
REFUSED = -5  # an argument is invalid
BROKEN = -7  # with fused updates: a failed step has changed weights; a state must be loaded

HALF = -1  # the plan block's phase after BROKEN
# Failed steps that end a run with fused updates: in a row in Python, in all in a bundle's example.
RETURNS = 25

# Header of a stored state: BLOCK bytes of words. CRC covers the words before it, then the rest.
MAGIC = 0x0000_0001_5354_4445  # "EDTS", version 1
SEQUENCE, STORED_DIGEST, LENGTH, ROWS, CRC = 1, 2, 4, 5, 7
# A row of the table of names: u32 hash of the name, offset, bytes, number of its storage.

# Where the control block stores a schedule's integers: from RATE + SAVED_WINDOWS the second
# (patience) and third (cooldown), from RATE + SAVED_RATE the schedule's number and the first
# integer (step_size, timescale, window, or the number of milestones at SEEN). Other numbers are at
# RATE.
SAVED_WINDOWS, SAVED_RATE = 3, 5
DROPS = 8  # maximum number of milestones
LONG = 10_000  # timescale of inverse_sqrt if neither it nor a warm-up is set

# Words of the struct that describes a schedule: int64, from GIVEN_LR on float64.
GIVEN_KIND, GIVEN_TOTAL, GIVEN_WARMUP, GIVEN_SIZE = 0, 1, 2, 3
GIVEN_PATIENCE, GIVEN_COOLDOWN, GIVEN_DROPS = 4, 5, 6
GIVEN_LR, GIVEN_NUMBERS, GIVEN_CYCLE = 6 + DROPS, 7 + DROPS, 10 + DROPS
GIVEN_WORDS = 13 + DROPS
