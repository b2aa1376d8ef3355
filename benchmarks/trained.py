"""Two steps of a Program through a Trainer, and the bytes by which the process grew meanwhile.

    python -m benchmarks.trained PROGRAM.edge npy:DIR

It imports only what a user who trains from Python imports: anything else already in memory would
hide part of the growth. Growth is counted after the Program is read.
"""

import hashlib
import json
import sys
from typing import Any

import edgetrain as et

STEPS = 2


def resident_nbytes() -> tuple[int, int]:
    """Return resident memory of this process, and the part not backed by files."""
    with open("/proc/self/status") as file:
        fields = dict(line.split(":", 1) for line in file)
    whole, of_files = (int(fields[key].split()[0]) * 1024 for key in ("VmRSS", "RssFile"))
    return whole, whole - of_files  # the arena counts as shared memory there


def train(path: str, data: str) -> dict[str, Any]:
    """Train; return growth in bytes, seconds per step, losses and a digest of the state."""
    program = et.load_program(path)
    before = resident_nbytes()
    events: list[dict[str, Any]] = []
    trainer = et.Trainer(program, data, on_event=events.append)
    done = trainer.fit(steps=STEPS, verbose=False)
    grown, private = (b - a for a, b in zip(before, resident_nbytes(), strict=True))
    steps = [event for event in events if event["event"] == "step"]
    assert len(steps) == STEPS and not any(event["skipped"] for event in steps), steps
    state = sorted(trainer.session.state().items())
    whole = hashlib.sha256(b"".join(array.tobytes() for _, array in state))
    trainer.close()
    return {
        "grown": grown,
        "private": private,
        "seconds": done["seconds"][-1] / STEPS,
        "losses": [event["loss"] for event in steps],
        "digest": whole.hexdigest()[:12],
    }


if __name__ == "__main__":
    print(json.dumps(train(*sys.argv[1:])))
