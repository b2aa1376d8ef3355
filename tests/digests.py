"""Digests of training runs: what must stay the same bits while rooms are rebuilt.

python -m tests.digests [--write] [NET ...] compares with (or writes) tests/golden/digests.json.
The gradient of a sparse convolution adds in an order that depends on the length of vectors, so
sparse runs are those of LANES lanes and are compared on such processors only.
"""

import argparse
import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

import edgetrain as et
from edgetrain.exporters import export_torch
from edgetrain.kernels import targets
from edgetrain.losses import Loss
from examples.zoo import ZOO

GOLDEN = Path(__file__).parent / "golden" / "digests.json"
STEPS, SAMPLES, MINIBATCH, MICROBATCH = 20, 64, 16, 8
LANES = 16
NETS = (
    "mlp", "keyword", "resnet18", "mobilenet_v2", "wrn28_2", "transformer_encoder",
    "unet_transposed", "lstm_language_model", "gru_classifier", "gpt",
)  # fmt: skip
# Recurrent weights stay dense.
DENSE = ("lstm_language_model", "gru_classifier")
SETTINGS: dict[str, dict[str, Any]] = {
    "fp32": {"optimizer": et.SGD(lr=0.02, momentum=0.9)},
    "fp16": {
        "optimizer": et.SGD(lr=0.02, momentum=0.9, nesterov=True, weight_decay=5e-4),
        "precision": "fp16",
    },
    "sparse": {"optimizer": et.SGD(lr=0.02, momentum=0.9), "precision": "fp16", "density": 0.3},
    "adam": {"optimizer": et.AdamW(lr=1e-3)},
}


def digest(state: dict[str, np.ndarray]) -> str:
    """Digest of names, shapes, dtypes and bytes."""
    total = hashlib.sha256()
    for name in sorted(state):
        array = np.ascontiguousarray(state[name])
        total.update(f"{name} {array.dtype.str} {array.shape}".encode() + array.tobytes())
    return total.hexdigest()


def run_digest(net: str, setting: str, folder: Path) -> str:
    """The state of one zoo net after some steps, rewirings and epochs included."""
    entry = ZOO[net]
    torch.manual_seed(0)
    path = folder / f"{net}.onnx"
    example = entry.example_inputs(2, "small")
    export_torch(entry.build("small"), example, path, batch_dim=entry.batch_dim)
    (x,), y = entry.example_inputs(SAMPLES, "small"), entry.target(SAMPLES, "small")
    data = folder / f"{net}.npz"
    np.savez(data, x_train=x, y_train=y, x_test=x[:MINIBATCH], y_test=y[:MINIBATCH])
    ignored = -100 if entry.ignore_index is None else entry.ignore_index
    program = et.compile(
        et.load_onnx(path), loss=Loss(entry.loss, ignore_index=ignored), minibatch=MINIBATCH,
        microbatch=MICROBATCH, verbose=False, **SETTINGS[setting],
    )  # fmt: skip
    trainer = et.Trainer(program, f"npz:{data}")
    try:
        trainer.fit(steps=STEPS, verbose=False)
        return digest(trainer.session.state())
    finally:
        trainer.close()


def main() -> int:
    """Compare all runs, or those of the named nets; return 1 if one differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("nets", nargs="*", metavar="NET")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    lanes = targets.host().lanes
    if args.write and lanes != LANES:
        parser.error(f"--write: this processor has {lanes} lanes; expected {LANES}.")
    found: dict[str, dict[str, str]] = {}
    departs: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for net in args.nets or NETS:
            sparse = lanes == LANES and net not in DENSE
            settings = [name for name in SETTINGS if name != "sparse" or sparse]
            found[net] = {name: run_digest(net, name, Path(folder)) for name in settings}
            departs += [net] * (not found[net].items() <= golden.get(net, {}).items())
            print(f"{net:22} {'DIFFERS' if net in departs else 'same'}", flush=True)
    if args.write:
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(json.dumps(golden | found, indent=1) + "\n")
    return int(bool(departs))


if __name__ == "__main__":
    sys.exit(main())
