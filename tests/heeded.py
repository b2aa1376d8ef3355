"""Signals of a suite that was started in the background."""

import signal


def heed_signals() -> None:
    """Undo that SIGINT and SIGHUP are ignored, for commands that tests start and interrupt.

    A suite in a shell's background, or under nohup, inherits ignored signals and passes them on.
    """
    for name, answer in (("SIGINT", signal.default_int_handler), ("SIGHUP", signal.SIG_DFL)):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, answer)
