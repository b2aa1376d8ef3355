"""Peers beside us: time and measured memory of a training step, each in a process of its own.

    python -m benchmarks.peers [--threads N] [--steps N] [NET ...]

Contenders: edgetrain (fp32, fp16, and density 0.1 if weights may be sparse), torch eager in both
memory formats, torch.compile if there is a C++ compiler, and sparseprop at density 0.1 if it is
installed (`pip install sparseprop` builds it). A step is loss, backward and SGD with momentum on
one batch. Time is the median over steps, without the first two. Memory is the peak growth of the
process, without pages of files, from before the model is created to the last step.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from examples.zoo import ZOO
from examples.zoo.resnet import ResNet

LR, MOMENTUM, DENSITY = 0.01, 0.9, 0.1
LIMIT = 900  # seconds of a contender


class Peer(NamedTuple):
    """A net of the zoo, its batch, and whether it takes images.

    Nets of images may have sparse convolutions and either memory format.
    """

    zoo: str
    batch: int
    images: bool


NETS = {
    "WRN-28-2": Peer("wrn28_2", 10, True),
    "ResNet-18 at 64": Peer("resnet18", 8, True),
    "MobileNetV2 at 64": Peer("mobilenet_v2", 8, True),
    "transformer encoder": Peer("transformer_encoder", 8, False),
    "LSTM language model": Peer("lstm_language_model", 8, False),
}
OURS: dict[str, dict[str, Any]] = {
    "edgetrain fp32": {},
    "edgetrain fp16": {"precision": "fp16"},
    "edgetrain fp16, density 0.1": {"precision": "fp16", "density": DENSITY},
}
THEIRS = ("torch eager", "torch eager, channels_last", "torch.compile", "sparseprop, density 0.1")


def contenders(peer: Peer) -> list[str]:
    """The contenders that can run this net."""
    names = [*OURS, *THEIRS]
    return names if peer.images else [n for n in names if "density" not in n and "last" not in n]


def _made(peer: Peer) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """Return module, inputs and targets of a step."""
    torch.manual_seed(0)
    entry = ZOO[peer.zoo]
    if peer.zoo == "resnet18":
        module: nn.Module = ResNet((2, 2, 2, 2), False, 64, 10)
        return module, torch.randn(peer.batch, 3, 64, 64), torch.randint(0, 10, (peer.batch,))
    x, module = entry.example_inputs(peer.batch, "full")[0], entry.build("full")
    if peer.zoo == "mobilenet_v2":
        x = torch.randn(peer.batch, 3, 64, 64)
    return module, x, entry.target(peer.batch, "full")


class _Growth:
    """Peak growth of this process while the block runs, without pages of files."""

    def __enter__(self) -> "_Growth":
        self._before, self.nbytes, self._ended = _resident(), 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._ended.wait(0.005):
            self.nbytes = max(self.nbytes, _resident() - self._before)

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self.nbytes = max(self.nbytes, _resident() - self._before)


def _resident() -> int:
    with open("/proc/self/status") as file:
        fields = dict(line.split(":", 1) for line in file)
    return sum(int(fields[key].split()[0]) * 1024 for key in ("RssAnon", "RssShmem"))


def _timed(step: Callable[[], object], steps: int) -> float:
    seconds = []
    for _ in range(steps + 2):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[2:])


def _our_program(peer: Peer, name: str, threads: int, path: Path) -> None:
    """Compile in the parent, so that the measured process only runs."""
    import edgetrain as et
    from edgetrain.exporters import export_torch
    from edgetrain.losses import Loss

    entry = ZOO[peer.zoo]
    module, x, _ = _made(peer)
    model = path.with_suffix(".onnx")
    export_torch(
        module, (x[:2] if entry.batch_dim == 0 else x[:, :2],), model, batch_dim=entry.batch_dim
    )
    ignored = -100 if entry.ignore_index is None else entry.ignore_index
    program = et.compile(
        et.load_onnx(model),
        loss=Loss(entry.loss, ignore_index=ignored),
        threads=threads,
        minibatch=peer.batch,
        microbatch=peer.batch,
        optimizer=et.SGD(LR, momentum=MOMENTUM),
        verbose=False,
        **OURS[name],
    )
    et.Session(program).close()
    program.save(path)


def _ours(peer: Peer, path: Path, steps: int) -> dict[str, float]:
    from edgetrain.runtime.loading.program import load_program
    from edgetrain.runtime.session import Session

    _, x, y = _made(peer)
    arrays = [np.asarray(x), np.asarray(y)]
    with _Growth() as growth:
        program = load_program(path)
        session = Session(program)
        views = [session.arena.view(slot) for slot in program.staged("micro").values()]

        def fill(indices: np.ndarray) -> None:
            for view, array in zip(views, arrays, strict=True):
                view[...] = array.reshape(view.shape)

        seconds = _timed(lambda: session.minibatch(peer.batch, fill), steps)
    session.close()
    return {"seconds": seconds, "grown": growth.nbytes}


def _sparse(module: nn.Module, shape: tuple[int, ...]) -> nn.Module:
    """Replace convolutions by sparseprop's modules, which keep `DENSITY` of the weights."""
    from sparseprop.utils import swap_modules_with_sparse  # type: ignore[import-not-found]

    with torch.no_grad():
        for layer in module.modules():
            if isinstance(layer, nn.Conv2d) and layer.in_channels > 3:
                layer.weight.mul_(torch.rand_like(layer.weight) < DENSITY)
    return swap_modules_with_sparse(module, shape, inplace=True)


def _theirs(peer: Peer, name: str, steps: int) -> dict[str, float]:
    module, x, y = _made(peer)
    del module
    with _Growth() as growth:
        module = _made(peer)[0].train()
        if "last" in name:
            module = module.to(memory_format=torch.channels_last)
            x = x.contiguous(memory_format=torch.channels_last)
        if name.startswith("sparseprop"):
            with open(os.devnull, "w") as nowhere:
                stdout, sys.stdout = sys.stdout, nowhere
                module = _sparse(module, tuple(x.shape))
                sys.stdout = stdout
        run = torch.compile(module) if name == "torch.compile" else module
        optimizer = torch.optim.SGD(module.parameters(), lr=LR, momentum=MOMENTUM)

        def step() -> None:
            optimizer.zero_grad(set_to_none=True)
            ZOO[peer.zoo].loss_value(run(x), y).backward()
            optimizer.step()

        seconds = _timed(step, steps)
    return {"seconds": seconds, "grown": growth.nbytes}


def missing(name: str) -> str:
    """Return why a contender cannot take part; "" if it can."""
    if name == "torch.compile" and not (shutil.which("g++") or shutil.which("clang++")):
        return "no compiler of C++ here"
    if name.startswith("sparseprop"):
        import importlib.util

        return "" if importlib.util.find_spec("sparseprop") else "not installed here"
    return ""


def measure(net: str, name: str, threads: int, steps: int) -> dict[str, Any]:
    """Return `seconds` and `grown` (bytes) of a step, or `error`."""
    error = missing(name)
    if error:
        return {"error": error}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "net.edge")
        if name in OURS:
            _our_program(NETS[net], name, threads, path)
        command = [
            sys.executable,
            "-m",
            "benchmarks.peers",
            net,
            "--one",
            name,
            "--program",
            str(path),
            "--threads",
            str(threads),
            "--steps",
            str(steps),
        ]
        try:
            ran = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
        except subprocess.TimeoutExpired:
            return {"error": f"not done in {LIMIT} s"}
    if ran.returncode:
        return {"error": (ran.stderr.strip().splitlines() or ["failed"])[-1][:80]}
    return json.loads(ran.stdout.splitlines()[-1])


def main() -> None:
    """Print the table, or measure one contender."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("nets", nargs="*", metavar="NET", help=", ".join(NETS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--program", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    unknown = [name for name in args.nets if name not in NETS]
    if unknown:
        parser.error(f"unknown net {unknown[0]!r}; expected of: {', '.join(NETS)}")
    torch.set_num_threads(args.threads)
    if args.one:
        peer = NETS[args.nets[0]]
        ours = args.one in OURS
        found = (
            _ours(peer, args.program, args.steps) if ours else _theirs(peer, args.one, args.steps)
        )
        print(json.dumps(found))
        return
    print("| net | batch | | ms a step | process grew by, MB |\n|---|---|---|---|---|", flush=True)
    for net in args.nets or NETS:
        for name in contenders(NETS[net]):
            found = measure(net, name, args.threads, args.steps)
            cells = found.get("error") or f"{found['seconds'] * 1e3:.1f}"
            grown = f"{found['grown'] / 1e6:.1f}" if "grown" in found else "-"
            print(f"| {net} | {NETS[net].batch} | {name} | {cells} | {grown} |", flush=True)


if __name__ == "__main__":
    main()
