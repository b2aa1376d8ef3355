"""Memory of the process, apart from the arena."""

from ...runtime.arena import Arena


def resident_nbytes(arena: Arena | None = None) -> int | None:
    """Resident bytes of this process without the arena; None if the system does not tell."""
    try:
        with open("/proc/self/status") as file:
            fields = dict(line.split(":", 1) for line in file)
        whole = int(fields["VmRSS"].split()[0]) * 1024
        return whole - (_resident_of(arena.address) if arena is not None else 0)
    except (OSError, KeyError, ValueError):
        return None


def _resident_of(address: int) -> int:
    """Resident bytes of the mapping that contains `address`."""
    inside = False
    with open("/proc/self/smaps") as file:
        for line in file:
            first = line.split(None, 1)[0]
            if "-" in first and not first.endswith(":"):
                low, high = (int(part, 16) for part in first.split("-"))
                inside = low <= address < high
            elif inside and first == "Rss:":
                return int(line.split()[1]) * 1024
    return 0
