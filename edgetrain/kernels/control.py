"""The control block: 64 words of 8 bytes in the arena that hold the state of a run.

Whoever runs a Program writes the seed, the rates and the length of the run before the first step.
Kernels do the rest: they count, add up losses and store norms and flags. Integers are int64, reals
float64.
"""

WORDS = 64
NBYTES = WORDS * 8

# int64 words
SEED = 0  # of the run
STEP = 1  # minibatches begun, skipped ones included
MICROBATCH = 2  # index within the minibatch
COUNT = 3  # valid samples of this microbatch (evaluation masks the rest)
ADAM_T = 4  # updates applied, for Adam's bias correction
SKIP = 5  # 1: a gradient or a staged statistic was not finite, update writes nothing
CORRECT = 6  # evaluation: targets predicted
TARGETS = 7  # targets that are not ignored, since the last reset
GOOD_STEPS = 8  # finite steps since the loss scale last changed
BAD_STEPS = 9  # steps in a row that moved no weight
TOTAL_STEPS = 10  # of the whole run
WARMUP = 11  # first steps, over which the learning rate rises
REWIRE_DUE = 12  # 1: the sparse weights are rewired after this step
STATE_EXPONENT = 13  # short formats hold optimizer state times 2 to this power
NEXT_EXPONENT = 14  # the exponent that the next update stores with
STATE_PEAKS = 15  # bytes, 1: some state stored in this step is above a limit (optimizers/state.py)

# float64 words
LR = 16
LOSS_SCALE = 17  # the loss gradient is multiplied by it
NOMINAL = 18  # targets of a minibatch; gradients are divided by it while they accumulate
LOSS_SUM = 19  # sum of the losses of targets since the last reset, unscaled
GRAD_NORM = 20  # of the last update, after division by the loss scale
GRAD_FACTOR = 21  # update multiplies gradients by it: unscale, ignored targets, clipping
BIAS1 = 22  # 1 - beta1^t
BIAS2 = 23  # 1 - beta2^t
BASE_LR = 24  # multiplied by the schedule
RATE = 25  # first of RATE_WORDS parameters of the schedule
LAST_LOSS = 32  # mean over the targets of the last minibatch; NaN if none counted
SEEN = 33  # first of SEEN_WORDS words of a schedule's state; 0 at first
WEIGHT = 41  # sum of the weights of TARGETS, which a mean loss is divided by
RUN_LR = 42  # the run's LR while LR holds a parameter's own (optimizers/groups.py)

# For each of several losses, since the last reset: sum, targets, correct ones (int64), weights.
TERMS = 42
TERM_WORDS, MOST_TERMS = 4, 5

RATE_WORDS = 7
SEEN_WORDS = 8
PARTIALS = 64  # fixed number of partial sums of whole-model reductions

# What resuming a run needs besides STEP and the tensors of its state.
SAVED = {"updates": ADAM_T, "good_steps": GOOD_STEPS, "bad_steps": BAD_STEPS}
# The same, saved only if not 0: a run without scaled state leaves them out.
SAVED_EXPONENTS = {"state_exponent": STATE_EXPONENT, "next_exponent": NEXT_EXPONENT}
SAVED_REALS = {"loss_scale": LOSS_SCALE, "bias1": BIAS1, "bias2": BIAS2}


def counted(ints, reals) -> dict[str, int | float]:
    """The words that resuming a run needs, by name.

    Args:
      ints, reals: the words of a control block as int64 and as float64.
    """
    result: dict[str, int | float] = {name: int(ints[word]) for name, word in SAVED.items()}
    result |= {name: int(ints[word]) for name, word in SAVED_EXPONENTS.items() if ints[word]}
    return result | {name: float(reals[word]) for name, word in SAVED_REALS.items()}


OF_STATE = (ADAM_T, BIAS1, BIAS2, STATE_EXPONENT, NEXT_EXPONENT)  # the words of `of_state`


def of_state(counters) -> dict[str, int | float]:
    """The part of `counted` that belongs to an optimizer's state."""
    result = {name: counters[name] for name in ("updates", "bias1", "bias2")}
    return result | {name: counters.get(name, 0) for name in SAVED_EXPONENTS}
