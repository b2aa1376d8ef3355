"""Compare a run with its exported model in onnxruntime, on the digits' test samples.

python check.py RUN trained.onnx
"""

import sys

import numpy as np
import onnxruntime

import edgetrain as et
from edgetrain.runtime.run.state import load_state, open_run

TOLERANCE = 1e-4  # of a logit: the runtimes add in another order
LEAST_ACCURACY = 0.97


def samples() -> tuple[np.ndarray, np.ndarray]:
    """All test samples: float32 [360, 1, 8, 8] and int64 [360]."""
    source = et.open_data("digits", split="test")
    x = np.empty((source.n, 1, 8, 8), np.float32)
    y = np.empty(source.n, np.int64)
    source.fill(np.arange(source.n), {"x": x, "y": y})
    return x, y


def our_logits(run: str, x: np.ndarray) -> np.ndarray:
    """Logits of edgetrain's own evaluation tape: [n, 10]."""
    program, state, *_ = open_run(run)
    session = et.Session(program)
    try:
        load_state(session, state or {}, run)
        return session.predict({program.inputs["eval"][0].name: x})
    finally:
        session.close()


def their_logits(model: str, x: np.ndarray) -> np.ndarray:
    """Logits of onnxruntime: [n, 10]."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x})[0]


def main(run: str, model: str) -> int:
    """Print the comparison; return 0 if both agree and are accurate."""
    x, y = samples()
    ours, theirs = our_logits(run, x), their_logits(model, x)
    accuracy = float((theirs.argmax(1) == y).mean())
    worst = float(np.abs(ours - theirs).max())
    same = int((ours.argmax(1) == theirs.argmax(1)).sum())
    print(
        f"onnxruntime: accuracy {100 * accuracy:.2f} %, {same} of {len(y)} predictions as ours, "
        f"logits within {worst:.1e}"
    )
    return 0 if same == len(y) and worst < TOLERANCE and accuracy >= LEAST_ACCURACY else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
