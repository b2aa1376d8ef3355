"""SmolLM2-135M's shape with low-rank adapters on its queries and values, beside torch with peft.

    python -m benchmarks.adapters [--budget 64MB ...] [--frozen int4] [--layers 30] [--no-torch]

LlamaForCausalLM of the transformers package with random weights and the published numbers: 30
layers, 576 wide, 9 heads over 3, 1,536 inside, 49,152 words, tied. Rank 8, AdamW, one sequence of
256 tokens; three steps, each contender in a process of its own. Seconds are those of the last step,
of the processor and of the wall; the process's peak is VmHWM.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

TOKENS, STEPS, RANK = 256, 3, 8
NUMBERS = {
    "vocab_size": 49_152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": TOKENS,
    "rope_theta": 100_000.0,
    "tie_word_embeddings": True,
    "use_cache": False,
}
HEAD = (
    "| contender | arena, MB | mapped, MB | process peak, MiB | extra forward "
    "| CPU s a step | wall s | losses |",
    "|---|---|---|---|---|---|---|---|",
)


def body(layers: int) -> Any:
    """The transformers model."""
    import torch
    import transformers

    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = transformers.LlamaConfig(num_hidden_layers=layers, **NUMBERS)
        return transformers.LlamaForCausalLM(config)


def exported(layers: int, path: Path) -> None:
    """The model as ONNX: tokens to logits."""
    import torch

    from edgetrain.exporters import export_torch

    class Logits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = body(layers)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.body(input_ids=x).logits

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        export_torch(Logits(), (torch.zeros(2, TOKENS, dtype=torch.int64),), path)


def timed(step: Callable[[], float]) -> dict[str, Any]:
    """Losses of some steps, the last one's seconds, this process's peak."""
    losses, cpu, wall = [], 0.0, 0.0
    for _ in range(STEPS):
        cpu, wall = time.process_time(), time.perf_counter()
        losses.append(round(step(), 5))
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    with open("/proc/self/status") as file:
        peak = next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
    return {"losses": losses, "cpu": cpu, "wall": wall, "peak": peak / 1024}


def run_program(path: Path) -> dict[str, Any]:
    """Train the Program at `path`."""
    import numpy as np

    from edgetrain.optim import Schedule
    from edgetrain.runtime.loading import load_program
    from edgetrain.runtime.session import Session

    program = load_program(path)
    session, random = Session(program), np.random.default_rng(0)
    (x,), y = program.inputs["micro"], program.targets["micro"]
    tokens = random.integers(0, NUMBERS["vocab_size"], (1, TOKENS + 1))

    def fill(indices: np.ndarray) -> None:
        session.arena.view(x)[...] = tokens[:, :-1]
        session.arena.view(y)[...] = tokens[:, 1:]

    def step() -> float:
        done = session.minibatch(program.minibatch, fill)
        assert done is not None and not done.skipped
        return done.loss

    session.set_rate(1e-4, Schedule(), 0)
    return timed(step)


def run_torch(layers: int) -> dict[str, Any]:
    """Train the same with peft, in float32."""
    import numpy as np
    import peft
    import torch

    torch.set_num_threads(2)
    config = peft.LoraConfig(r=RANK, lora_alpha=16, target_modules=["q_proj", "v_proj"])
    model = peft.get_peft_model(body(layers), config)
    model.train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    tokens = np.random.default_rng(0).integers(0, NUMBERS["vocab_size"], (1, TOKENS + 1))
    x, y = torch.tensor(tokens[:, :-1]), torch.tensor(tokens[:, 1:])

    def step() -> float:
        loss = torch.nn.functional.cross_entropy(model(input_ids=x).logits[0], y[0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return timed(step)


def child(*arguments: str) -> dict[str, Any]:
    """What a contender found in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.adapters", *arguments]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def lines(budgets: Sequence[str], frozen: str, layers: int, torch_too: bool) -> Iterator[str]:
    """The table, a line as soon as it is known."""
    import edgetrain as et

    yield from HEAD
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        exported(layers, path)
        model = et.load_onnx(path)
        for budget in budgets:
            program = et.compile(
                model, budget=budget, optimizer=et.AdamW(lr=1e-4), minibatch=1, threads=2,
                frozen=frozen, lora=f"r={RANK},alpha=16,targets=*.q_proj,*.v_proj",
                allow=("slices",),
            )  # fmt: skip
            file = program.save(Path(folder, f"{budget}.edge"))
            et.Trainer(program).close()  # compiles the kernels: the child only loads them
            found = child("--program", str(file))
            facts = program.account
            yield (
                f"| {frozen} frozen, in {budget} | {program.arena_nbytes / 1e6:.1f} | "
                f"{program.mapped_nbytes / 1e6:.1f} | {found['peak']:.0f} | "
                f"{facts['extra_forward_flops']:.2f} | {said(found)} |"
            )
    if torch_too:
        found = child("--run-torch", "--layers", str(layers))
        yield f"| torch and peft, fp32 | - | - | {found['peak']:,.0f} | - | {said(found)} |"


def said(found: dict[str, Any]) -> str:
    """The last three cells."""
    losses = ", ".join(f"{loss:.4f}" for loss in found["losses"])
    return f"{found['cpu']:.1f} | {found['wall']:.1f} | {losses}"


def main() -> None:
    """Print the table, or run one contender."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budget", nargs="+", default=["64MB", "160MB"])
    parser.add_argument("--frozen", default="int4")
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--program", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--run-torch", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.program is not None:
        print(json.dumps(run_program(args.program)))
    elif args.run_torch:
        print(json.dumps(run_torch(args.layers)))
    else:
        for line in lines(args.budget, args.frozen, args.layers, not args.no_torch):
            print(line, flush=True)


if __name__ == "__main__":
    main()
