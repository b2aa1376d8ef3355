"""The control block: 64 words of 8 bytes in the arena through which Python and kernels talk.

Python writes counters and the learning rate between steps; kernels read them, add up losses
and leave norms and flags. Integers are int64, reals float64.
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

# float64 words
LR = 16
LOSS_SCALE = 17  # the loss gradient is multiplied by it
NOMINAL = 18  # targets of a minibatch; gradients are divided by it while they accumulate
LOSS_SUM = 19  # sum of the losses of targets since the last reset, unscaled
GRAD_NORM = 20  # of the last update, after division by the loss scale
GRAD_FACTOR = 21  # what update multiplies gradients by: unscale, ignored targets, clipping
BIAS1 = 22  # 1 - beta1^t
BIAS2 = 23  # 1 - beta2^t

PARTIALS = 64  # fixed number of partial sums of whole-model reductions
