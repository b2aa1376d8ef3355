"""A net trained on five speakers, and a sixth's recordings, from the Free Spoken Digit Dataset.

    python -m examples.keywords.make_model fsdd.npz

Writes model.onnx and speaker.npz here. fsdd.npz has `pcm` (int16, 8000 samples a second, all
recordings one after the other), `offsets`, `label`, `speaker`, `speakers` and `rec`. Needs torch.
"""

import sys
from pathlib import Path

import numpy as np
import torch

import edgetrain as et
from edgetrain.data.sources.sounds import fitted, log_mel
from edgetrain.exporters import export_torch
from examples.keywords.features import FRAMES, MELS, RATE, SHAPE, as_bytes, as_input
from examples.zoo.keyword import KeywordNet

HERE = Path(__file__).resolve().parent
HELD_OUT, RECORDINGS = "yweweler", 20  # the speaker, and recordings shipped per digit
EPOCHS, WIDTH, BLOCKS = 20, 16, 2
_SPAN = 200 + (FRAMES - 1) * 80  # samples in a window


def features(file) -> np.ndarray:
    """uint8 [n, MELS, FRAMES] of every recording."""
    pcm, offsets = file["pcm"], file["offsets"]
    out = np.empty((len(offsets) - 1, MELS, FRAMES), np.uint8)
    for k in range(len(out)):
        samples = pcm[offsets[k] : offsets[k + 1]].astype(np.float32) / 32768
        found = log_mel(fitted(samples, _SPAN), RATE, MELS, FRAMES)
        out[k] = as_bytes(found.reshape(MELS, FRAMES))
    return out


def main(path: str) -> int:
    """Make both files."""
    with np.load(path) as file:
        x, y = features(file), file["label"]
        own = file["speaker"] == list(file["speakers"]).index(HELD_OUT)
        recording = file["rec"]
    shipped = own & (recording < RECORDINGS)
    np.savez_compressed(
        HERE / "speaker.npz", x=x[shipped], y=y[shipped], recording=recording[shipped]
    )
    torch.manual_seed(0)
    net = KeywordNet(WIDTH, BLOCKS, 10)
    export_torch(net, torch.zeros(2, *SHAPE), HERE / "model.onnx", input_names=["x"])
    program = et.compile(
        HERE / "model.onnx", minibatch=50, optimizer=et.SGD(lr=0.1, momentum=0.9, nesterov=True)
    )
    data = as_input(x[~own]), y[~own].astype(np.int64)
    with et.Trainer(program, data=data, schedule=et.Schedule("cosine")) as trainer:
        trainer.fit(epochs=EPOCHS)
        found = trainer.evaluate((as_input(x[own]), y[own].astype(np.int64)))
        trainer.export_onnx(HERE / "model.onnx")
    print(f"{HELD_OUT}, never heard: {100 * found['accuracy']:.1f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
