"""Drops the rate when the training loss stops falling."""

from .. import control
from ..language.inlining import inline
from ..language.prim import ld_f64, ld_i64, st_f64, to_real
from ..registry import kernel
from .rates import power, set_rate

STEP, LAST_LOSS, RATE, LR = control.STEP, control.LAST_LOSS, control.RATE, control.LR
BASE_LR, WARMUP, SKIPPED = control.BASE_LR, control.WARMUP, control.BAD_STEPS
# State, from SEEN on; initially 0. LOOKED: number of steps whose losses have been seen.
LOOKED, SUM, COUNT, WINDOWS, BEST, BAD, WAIT, DROPS = range(control.SEEN, control.SEEN + 8)


@inline
def add(ctl, word, more):
    """Add to a word of the state."""
    st_f64(ctl, word, ld_f64(ctl, word) + more)


@inline
def judge(ctl, mean, patience, cooldown):
    """Compare a window's mean loss with the best one; drop the rate after too many bad windows."""
    least = ld_f64(ctl, BEST) * (1.0 - ld_f64(ctl, RATE + 1))
    better = ld_f64(ctl, WINDOWS) == 0.0 or mean < least
    add(ctl, WINDOWS, 1.0)
    if better:
        st_f64(ctl, BEST, mean)
        st_f64(ctl, BAD, 0.0)
    else:
        add(ctl, BAD, 1.0)
    if ld_f64(ctl, WAIT) > 0.0:
        add(ctl, WAIT, -1.0)
        st_f64(ctl, BAD, 0.0)
    if ld_f64(ctl, BAD) > to_real(patience):
        add(ctl, DROPS, 1.0)
        st_f64(ctl, WAIT, to_real(cooldown))
        st_f64(ctl, BAD, 0.0)


@inline
def moved(ctl):
    """Whether the last step changed the weights; if not, its loss may come from bad data."""
    return ld_i64(ctl, SKIPPED) == 0


@inline
def any_step(ctl):
    """Count every step, skipped or not."""
    return True


def _plateau(counts):
    """`rate_plateau` over the steps for which `counts(ctl)` is true."""
    from ..language.prim import real_to_int

    def run(thread, nthreads, args):
        if thread != 0:
            return
        step = to_real(ld_i64(args.ctl, STEP))
        if step > ld_f64(args.ctl, LOOKED):
            st_f64(args.ctl, LOOKED, step)
            loss = ld_f64(args.ctl, LAST_LOSS)
            if loss - loss == 0.0 and counts(args.ctl):
                add(args.ctl, SUM, loss)
                add(args.ctl, COUNT, 1.0)
            if ld_f64(args.ctl, COUNT) >= to_real(args.window):
                judge(
                    args.ctl,
                    ld_f64(args.ctl, SUM) / ld_f64(args.ctl, COUNT),
                    args.patience,
                    args.cooldown,
                )
                st_f64(args.ctl, SUM, 0.0)
                st_f64(args.ctl, COUNT, 0.0)
        set_rate(args.ctl, power(ld_f64(args.ctl, RATE), real_to_int(ld_f64(args.ctl, DROPS))))
        if ld_i64(args.ctl, STEP) >= ld_i64(args.ctl, WARMUP):
            least = min(ld_f64(args.ctl, RATE + 2), ld_f64(args.ctl, BASE_LR))
            st_f64(args.ctl, LR, max(ld_f64(args.ctl, LR), least))

    return run


_OPERANDS, _CHECK = "ctl:m:i64[64] window=turns patience=turns cooldown=turns", "window >= 1"


@kernel("rate_plateau", _OPERANDS, check=_CHECK, revision="2")
def rate_plateau():
    """factor: RATE ** drops; LR is at least the value at RATE + 2. The rate drops if the mean
    LAST_LOSS of `window` steps was not below (1 - the threshold at RATE + 1) of the best for more
    than `patience` windows.

    In the `cooldown` windows after a drop, no window counts as bad. Losses that are not finite, and
    losses of skipped steps, do not count. A restarted step does not count a loss twice. Like
    torch's ReduceLROnPlateau, fed with the mean of each window.
    """
    return _plateau(moved)


@kernel("rate_plateau_all", _OPERANDS, check=_CHECK)
def rate_plateau_all():
    """Like revision 1 of `rate_plateau`, for runs that began with it: finite losses of skipped
    steps count too."""
    return _plateau(any_step)
