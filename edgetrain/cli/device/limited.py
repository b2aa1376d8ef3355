"""A command under a limit on address space (ulimit -v): one line if there is too little."""

from ...units import format_bytes

# Address space of Python and its libraries, on x86-64: with less, libraries fail in various
# ways. Running a compiled Program needs neither onnx nor the compiler.
_RUNNING, _COMPILING = 280 * 2**20, 560 * 2**20
_COMPILERS = ("plan", "advise", "compile", "parity", "migrate", "demo")
_TRAINERS = ("train", "find-lr")  # they also compile if they get a model


def address_limit() -> int | None:
    """Bytes this process may map; None: no limit."""
    try:
        with open("/proc/self/limits") as file:  # saves importing a library
            soft = next(line.split()[3] for line in file if line.startswith("Max address space"))
        return None if soft == "unlimited" else int(soft)
    except (OSError, StopIteration, ValueError, IndexError):
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        return None if limit == resource.RLIM_INFINITY else limit


def no_memory(limit: int | None, needs: int = 0) -> str:
    """The error message.

    Args:
      limit: from `address_limit`.
      needs: bytes the command needs at least; 0 if unknown.
    """
    if limit is None:
        return "error: the system has no memory left. Free some, or lower limits."
    least = f", at least {format_bytes(needs)} are needed plus the arena" if needs else ""
    return (
        f"error: not enough memory: ulimit -v allows {format_bytes(limit)}{least}. Raise the limit."
    )


def needed(command: str, file: str) -> int:
    """Bytes of address space that a command needs to start.

    Args:
      file: the model or Program; "" if none.
    """
    if command in _COMPILERS or (command in _TRAINERS and file.endswith(".onnx")):
        return _COMPILING
    return _RUNNING if command in (*_TRAINERS, "eval") else 0
