"""DynamicConv learns to translate: Multi30k, German to English; fp32 and int8 beside torch.

    python -m benchmarks.translation DIR [--epochs 5] [--sentences N] [--only fp32,int8,torch]
    python -m benchmarks.translation DIR --only padded,lengths

DIR has train.de, train.en, test.de and test.en, one sentence per line (test 2016). Each run starts
with the same weights and takes the same batches in the same order; fp32 and int8 are storage
formats of model memory. Words are pieces of a joint vocabulary, and one matrix serves as both
embeddings and the head. Every sentence is cut or padded to one length; padding is not a target.
Decoding is greedy. BLEU is computed by sacrebleu on the original test sentences; without sacrebleu
it is left out.

The runs `padded` and `lengths` cut no sentence and mask the padding: `padded` pads all sentences to
the longest, `lengths` compiles one Program for several lengths and counts minibatches in tokens.
"""

import argparse
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from edgetrain.api import compile as compile_program
from edgetrain.losses import Loss
from edgetrain.optim import Adam, Schedule
from edgetrain.program import Program
from edgetrain.runtime.training.trainer import Trainer
from tests.twins import Batches, factor

from .dynamicconv import Translator
from .nets import exported
from .pieces import BEGIN, END, PADDING, Pieces

RUNS = ("fp32", "int8", "torch")
MASKED = ("padded", "lengths")
SMOOTHING, BETA2 = 0.1, 0.98
MOST_PARAMETERS = 3_000_000
HEAD = (
    "| run | arena, MB | losses of the first three steps | of the last fifty | BLEU | s a step |",
    "|---|---|---|---|---|---|",
)
MASKED_HEAD = (
    "| run | arena, MB | steps an epoch | loss of the last fifty | BLEU | CPU s an epoch |",
    "|---|---|---|---|---|---|",
)
Logits = Callable[[np.ndarray, np.ndarray], np.ndarray]
Texts = dict[str, list[str]]


@dataclass(frozen=True)
class Settings:
    """Model and training settings.

    Attributes:
      words: maximum number of pieces in the vocabulary.
      length: tokens of a sentence.
      width, heads, encoder, decoder: of `Translator`.
      minibatch, microbatch: sentences per step, and per pass.
      lengths: for the run `lengths`, besides the longest sentence's; its minibatches have as many
        tokens as `microbatch` of the longest sentences.
      warmup: steps over which the rate rises to `lr`; half a cosine follows.
      seed: of initial weights, order and rounding.
    """

    words: int = 3000
    length: int = 28
    width: int = 96
    heads: int = 4
    encoder: tuple[int, ...] = (3, 7)
    decoder: tuple[int, ...] = (3, 7)
    minibatch: int = 64
    microbatch: int = 16
    lengths: tuple[int, ...] = (12, 16, 20, 24, 32)
    lr: float = 2e-3
    warmup: int = 200
    threads: int = 2
    seed: int = 0

    def fitted(self, sentences: int, epochs: float) -> "Settings":
        """Limit warm-up to a quarter of the run."""
        steps = max(1, round(epochs * (sentences // self.minibatch)))
        return replace(self, warmup=min(self.warmup, steps // 4))


def net(settings: Settings, words: int) -> Translator:
    """The initial net of every run, with one matrix for both embeddings and the head."""
    s = settings
    torch.manual_seed(s.seed)
    module = Translator(words, words, s.width, s.heads, s.encoder, s.decoder, dropout=0.0)
    module.target.weight = module.head.weight = module.source.weight
    assert sum(p.numel() for p in module.parameters()) <= MOST_PARAMETERS
    return module


def padded(sentences: Sequence[Sequence[int]], length: int) -> np.ndarray:
    """Return ids [sentences, length]; longer sentences are cut."""
    out = np.full((len(sentences), length), PADDING, np.int64)
    for row, ids in zip(out, sentences, strict=True):
        row[: len(ids)] = ids[:length]
    return out


def arrays(
    pieces: Pieces, source: Sequence[str], target: Sequence[str], length: int
) -> dict[str, np.ndarray]:
    """Convert lines of both languages to source ids, shifted target ids and next ids "y"."""
    ids = [pieces.encode(line) for line in target]
    return {
        "source": padded([[*pieces.encode(line), END] for line in source], length),
        "target": padded([[BEGIN, *line] for line in ids], length),
        "y": padded([[*line, END] for line in ids], length),
    }


def greedy(logits: Logits, source: np.ndarray) -> np.ndarray:
    """Decode greedily; return ids [sentences, length], with PADDING after END.

    Args:
      logits: a function of (source, target), both ids [sentences, length].
    """
    chosen = np.full(source.shape, PADDING, np.int64)
    target = np.full(source.shape, PADDING, np.int64)
    target[:, 0] = BEGIN
    going = np.ones(len(source), bool)
    for t in range(source.shape[1]):
        chosen[going, t] = logits(source, target)[going, t].argmax(-1)
        going &= chosen[:, t] != END
        if not going.any():
            break
        target[:, t + 1 : t + 2] = chosen[:, t : t + 1]
    return chosen


def translated(
    logits: Logits, pieces: Pieces, lines: Sequence[str], length: int, at_once: int = 64
) -> list[str]:
    """Translate lines in batches of similar length, which end at about the same step."""
    source = padded([[*pieces.encode(line), END] for line in lines], length)
    order = np.argsort((source != PADDING).sum(1), kind="stable")
    out = [""] * len(lines)
    for start in range(0, len(lines), at_once):
        part = order[start : start + at_once]
        for number, ids in zip(part, greedy(logits, source[part]), strict=True):
            out[number] = pieces.decode(ids)
    return out


def bleu(found: Sequence[str], expected: Sequence[str]) -> str:
    """sacrebleu's corpus score as a table cell."""
    try:
        from sacrebleu import corpus_bleu
    except ImportError:
        return "no sacrebleu"
    return f"{corpus_bleu(found, [expected]).score:.2f}"


@dataclass
class Run:
    """A trained net.

    Attributes:
      losses: of every step.
      logits: a function of (source, target).
      arena: megabytes; "-" if there is none.
      close: releases what `logits` needs.
      cpu_seconds: per epoch, all threads.
    """

    losses: list[float]
    logits: Logits
    seconds: float
    arena: str = "-"
    close: Callable[[], None] = lambda: None
    cpu_seconds: float = math.nan


def _say(run: str, losses: Sequence[float], every: int = 100) -> None:
    if len(losses) % every == 0:
        print(f"{run} step {len(losses)}: loss {np.mean(losses[-every:]):.4f}", flush=True)


def train_ours(
    storage: str, module: nn.Module, data: dict[str, np.ndarray], s: Settings, epochs: float
) -> Run:
    """Train with `storage` as the format of model memory."""
    example = tuple(torch.zeros(2, s.length, dtype=torch.long) for _ in range(2))
    program = compile_program(
        exported(module, example), minibatch=s.minibatch, microbatch=s.microbatch,
        model_memory=storage, verbose=False, **_options(s),
    )  # fmt: skip

    def logits(trainer: Trainer, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        return trainer.predict({"source": source, "target": target})

    return _trained(program, storage, data, s, epochs, logits)


def train_masked(
    name: str, module: nn.Module, data: dict[str, np.ndarray], s: Settings, epochs: float
) -> Run:
    """Train without cutting sentences: all padded to the longest, or grouped by lengths."""
    data = dict(data)
    longest = data["y_train"].shape[1]
    words = torch.zeros(2, longest, dtype=torch.long)
    ends = data["lengths_train"]
    if name == "padded":
        del data["lengths_train"]
        data["mask_train"] = (np.arange(longest) < ends[:, None]).astype(np.float32)
        dims, options = None, {"minibatch": s.minibatch, "microbatch": s.microbatch}
    else:
        sizes = [*(n for n in s.lengths if n < longest), longest]
        dims, options = {1: "T"}, {"lengths": sizes, "tokens": s.microbatch * longest}
    model = exported(module, (words, words, torch.ones(2, longest)), dims)
    program = compile_program(model, verbose=False, **options, **_options(s))

    def logits(trainer: Trainer, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        mask = (source != PADDING).astype(np.float32)
        return trainer.predict({"source": source, "target": target, "mask": mask})

    return _trained(program, name, data, s, epochs, logits)


def _options(s: Settings) -> dict[str, Any]:
    """Options that all Programs share."""
    loss = Loss("cross_entropy", ignore_index=PADDING, label_smoothing=SMOOTHING)
    optimizer = Adam(s.lr, beta2=BETA2)
    return {"threads": s.threads, "seed": s.seed, "optimizer": optimizer, "loss": loss}


def _trained(
    program: Program, name: str, data: dict[str, np.ndarray], s: Settings, epochs: float,
    logits: Callable[[Trainer, np.ndarray, np.ndarray], np.ndarray],
) -> Run:  # fmt: skip
    losses: list[float] = []

    def note(event: dict) -> None:
        if event["event"] == "step":
            losses.append(event["loss"])
            _say(name, losses)

    schedule = Schedule("cosine", warmup_steps=s.warmup)
    trainer = Trainer(program, data, schedule=schedule, on_event=note, verbose=False)
    start, cpu = time.perf_counter(), time.process_time()
    trainer.fit(epochs=epochs)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    arena = f"{program.arena_nbytes / 1e6:.2f}"
    return Run(losses, partial(logits, trainer), seconds, arena, trainer.close, cpu / epochs)


def train_torch(module: nn.Module, data: dict[str, np.ndarray], s: Settings, epochs: float) -> Run:
    """Train in torch, in fp32, a whole minibatch at once."""
    torch.set_num_threads(s.threads)
    batches = Batches(len(data["y"]), s.minibatch, s.minibatch, s.seed)
    steps = max(1, round(epochs * batches.steps_per_epoch))
    schedule = Schedule("cosine", warmup_steps=s.warmup, total_steps=steps)
    optimizer = torch.optim.Adam(module.parameters(), s.lr, betas=(0.9, BETA2))
    tensors = [torch.from_numpy(data[name]) for name in ("source", "target", "y")]
    losses: list[float] = []
    start = time.perf_counter()
    for step in range(steps):
        (chosen,) = batches.microbatches(batches.cursor_at(step))
        source, target, y = (tensor[torch.from_numpy(chosen)] for tensor in tensors)
        optimizer.param_groups[0]["lr"] = s.lr * factor(schedule, step)
        optimizer.zero_grad()
        loss = _loss(module(source, target), y)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
        _say("torch", losses)
    seconds = time.perf_counter() - start

    @torch.no_grad()
    def logits(source: np.ndarray, target: np.ndarray) -> np.ndarray:
        return module(torch.from_numpy(source), torch.from_numpy(target)).numpy()

    return Run(losses, logits, seconds)


def _loss(logits: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(
        logits.flatten(0, 1), y.flatten(), ignore_index=PADDING, label_smoothing=SMOOTHING
    )


def lines(
    folder: Path,
    settings: Settings,
    epochs: float = 5,
    sentences: int | None = None,
    only: Sequence[str] = RUNS,
) -> Iterator[str]:
    """Yield the table, each line as soon as its run ends.

    Args:
      sentences: maximum of the training set and of the test set; None: all.
    """
    texts = {
        name: (folder / name).read_text("utf-8").splitlines()[:sentences]
        for name in ("train.de", "train.en", "test.de", "test.en")
    }
    pieces = Pieces(texts["train.de"] + texts["train.en"], settings.words)
    masked = set(only) <= {*MASKED}
    data = _data(pieces, texts, settings.length, masked)
    settings = settings.fitted(len(data["y_train"]), epochs)
    count = sum(p.numel() for p in net(settings, len(pieces.names)).parameters())
    yield f"{len(data['y_train'])} sentences, {len(pieces.names)} pieces, {count} parameters"
    yield from MASKED_HEAD if masked else HEAD
    for name in only:
        module = net(settings, len(pieces.names))
        if name == "torch":
            plain = {key.removesuffix("_train"): array for key, array in data.items()}
            run = train_torch(module, plain, settings, epochs)
        elif name in MASKED:
            run = train_masked(name, module, data, settings, epochs)
        else:
            run = train_ours(name, module, data, settings, epochs)
        found = translated(run.logits, pieces, texts["test.de"], data["y_train"].shape[1])
        run.close()
        for line in found[:3]:
            print(f"{name}: {line}", flush=True)
        score = bleu(found, texts["test.en"])
        yield _masked_row(name, run, score, epochs) if masked else _row(name, run, score)


def _data(pieces: Pieces, texts: Texts, length: int, masked: bool) -> dict[str, np.ndarray]:
    """Return the training set as arrays; `masked`: uncut, with `lengths`."""
    source, target = texts["train.de"], texts["train.en"]
    if not masked:
        found = arrays(pieces, source, target, length)
        return {f"{name}_train": array for name, array in found.items()}
    ends = [
        1 + max(len(pieces.encode(line)) for line in pair)
        for pair in zip(source, target, strict=True)
    ]
    found = arrays(pieces, source, target, max(ends)) | {"lengths": np.array(ends)}
    return {f"{name}_train": array for name, array in found.items()}


def _row(name: str, run: Run, score: str) -> str:
    first = ", ".join(f"{loss:.5f}" for loss in run.losses[:3])
    last = math.fsum(run.losses[-50:]) / len(run.losses[-50:])
    each = run.seconds / len(run.losses)
    return f"| {name} | {run.arena} | {first} | {last:.4f} | {score} | {each:.3f} |"


def _masked_row(name: str, run: Run, score: str, epochs: float) -> str:
    last = math.fsum(run.losses[-50:]) / len(run.losses[-50:])
    steps = round(len(run.losses) / epochs)
    return f"| {name} | {run.arena} | {steps} | {last:.4f} | {score} | {run.cpu_seconds:.1f} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--epochs", type=float, default=5)
    parser.add_argument("--sentences", type=int, help="of each set, to be quick")
    parser.add_argument("--only", default=",".join(RUNS), help="runs, with commas")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    only = args.only.split(",")
    if not (set(only) <= {*RUNS} or set(only) <= {*MASKED}):
        parser.error(
            f"--only {args.only}: expected some of {','.join(RUNS)}, or {','.join(MASKED)}"
        )
    if not (args.folder / "train.de").is_file():
        print(f"skipped: {args.folder} has no Multi30k (train.de, train.en, test.de, test.en)")
        return
    settings = Settings(threads=args.threads, seed=args.seed)
    if args.sentences is not None and args.sentences < settings.minibatch:
        parser.error(f"--sentences {args.sentences}: expected {settings.minibatch} or more")
    for line in lines(args.folder, settings, args.epochs, args.sentences, only):
        print(line, flush=True)


if __name__ == "__main__":
    main()
