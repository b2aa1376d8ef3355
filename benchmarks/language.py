"""Language models in their published shapes, beside torch.

    python -m benchmarks.language [smollm2|gpt2] [--budget 64MB ...] [--layers N] [--no-torch]

The models are classes of the transformers package with random weights. Each contender trains for
three AdamW steps on one sequence, in a process of its own. The table gives CPU and wall seconds of
the last step; the process's peak is VmHWM.

smollm2: SmolLM2-135M with low-rank adapters (rank 8) on queries and values; its own weights are
frozen, mapped, and in int4. Compared with peft. gpt2: all of GPT-2, every weight trained, model
memory in int8.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

STEPS, RANK = 3, 8


@dataclass(frozen=True)
class Case:
    """A model and how it is trained.

    Attributes:
      model, config: classes of the transformers package.
      numbers: sizes in the configuration, as published.
      tokens: the length of the sequence.
      budgets: of the arena.
      options: of `edgetrain.compile`.
      adapters: modules to which peft adds adapters; if empty, every weight is trained.
    """

    model: str
    config: str
    numbers: dict[str, Any]
    tokens: int
    budgets: tuple[str, ...]
    options: dict[str, Any]
    adapters: tuple[str, ...] = ()


CASES = {
    "smollm2": Case(
        "LlamaForCausalLM", "LlamaConfig",
        {
            "vocab_size": 49_152, "hidden_size": 576, "intermediate_size": 1536,
            "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
            "max_position_embeddings": 256, "rope_theta": 100_000.0, "tie_word_embeddings": True,
        },
        256, ("64MB", "160MB"),
        {
            "frozen": "int4", "lora": f"r={RANK},alpha=16,targets=*.q_proj,*.v_proj",
            "allow": ("slices",),
        },
        ("q_proj", "v_proj"),
    ),
    "gpt2": Case(
        "GPT2LMHeadModel", "GPT2Config",
        {
            "vocab_size": 50_257, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024,
            "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
        },
        128, ("600MB",), {"model_memory": "int8", "allow": ("slices", "rows")},
    ),
}  # fmt: skip
HEAD = (
    "| contender | arena, MB | mapped, MB | process peak, MiB | extra forward "
    "| CPU s a step | wall s | losses |",
    "|---|---|---|---|---|---|---|---|",
)


def body(case: Case) -> Any:
    """The transformers model."""
    import torch
    import transformers

    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = getattr(transformers, case.config)(use_cache=False, **case.numbers)
        return getattr(transformers, case.model)(config)


def exported(case: Case, path: Path) -> None:
    """Export the model to ONNX: tokens to logits."""
    import torch

    from edgetrain.exporters import export_torch

    class Logits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = body(case)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.body(input_ids=x).logits

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        export_torch(Logits(), (torch.zeros(2, case.tokens, dtype=torch.int64),), path)


def timed(step: Callable[[], float]) -> dict[str, Any]:
    """Run a few steps; return losses, seconds of the last step and this process's peak."""
    losses, cpu, wall = [], 0.0, 0.0
    for _ in range(STEPS):
        cpu, wall = time.process_time(), time.perf_counter()
        losses.append(round(step(), 5))
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    with open("/proc/self/status") as file:
        peak = next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
    return {"losses": losses, "cpu": cpu, "wall": wall, "peak": peak / 1024}


def sequence(case: Case) -> Any:
    """Return a row of words, one more than the model reads."""
    import numpy as np

    shape = (1, case.tokens + 1)
    return np.random.default_rng(0).integers(0, case.numbers["vocab_size"], shape)


def run_program(case: Case, path: Path) -> dict[str, Any]:
    """Train the Program at `path`."""
    import numpy as np

    from edgetrain.optim import Schedule
    from edgetrain.runtime.loading.program import load_program
    from edgetrain.runtime.session import Session

    program = load_program(path)
    session, tokens = Session(program), sequence(case)
    (x,), y = program.inputs["micro"], program.targets["micro"]

    def fill(indices: np.ndarray) -> None:
        session.arena.view(x)[...] = tokens[:, :-1]
        session.arena.view(y)[...] = tokens[:, 1:]

    def step() -> float:
        done = session.minibatch(program.minibatch, fill)
        assert done is not None and not done.skipped
        return done.loss

    session.lr = 1e-4
    session.set_schedule(Schedule(), 0)
    return timed(step)


def run_torch(case: Case) -> dict[str, Any]:
    """Train the same model in float32, with peft if there are adapters."""
    import torch

    torch.set_num_threads(2)
    model = body(case)
    if case.adapters:
        import peft

        config = peft.LoraConfig(r=RANK, lora_alpha=16, target_modules=list(case.adapters))
        model = peft.get_peft_model(model, config)
    model.train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    tokens = sequence(case)
    x, y = torch.tensor(tokens[:, :-1]), torch.tensor(tokens[:, 1:])

    def step() -> float:
        loss = torch.nn.functional.cross_entropy(model(input_ids=x).logits[0], y[0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return timed(step)


def child(*arguments: str) -> dict[str, Any]:
    """Run a contender in a process of its own and return its result."""
    command = [sys.executable, "-m", "benchmarks.language", *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def lines(case: Case, again: Sequence[str], torch_too: bool) -> Iterator[str]:
    """Yield the table line by line; `again` are the arguments that select this case."""
    import edgetrain as et

    yield from HEAD
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        exported(case, path)
        model = et.load_onnx(path)
        for budget in case.budgets:
            program = et.compile(
                model, budget=budget, optimizer=et.AdamW(lr=1e-4), minibatch=1, threads=2,
                verbose=False, **case.options,
            )  # fmt: skip
            file = program.save(Path(folder, f"{budget}.edge"))
            et.Trainer(
                program, verbose=False
            ).close()  # compiles the kernels: the child only loads them
            found = child(*again, "--program", str(file))
            facts = program.account
            yield (
                f"| in {budget} | {program.arena_nbytes / 1e6:.1f} | "
                f"{program.mapped_nbytes / 1e6:.1f} | {found['peak']:.0f} | "
                f"{facts['extra_forward_flops']:.2f} | {said(found)} |"
            )
    if torch_too:
        found = child(*again, "--run-torch")
        name = "torch and peft" if case.adapters else "torch"
        yield f"| {name}, fp32 | - | - | {found['peak']:,.0f} | - | {said(found)} |"


def said(found: dict[str, Any]) -> str:
    """Return the last three cells."""
    losses = ", ".join(f"{loss:.4f}" for loss in found["losses"])
    return f"{found['cpu']:.1f} | {found['wall']:.1f} | {losses}"


def asked(args: argparse.Namespace) -> Case:
    """Return the case with the command line's changes."""
    case = CASES[args.case]
    if args.layers:
        key = "num_hidden_layers" if "num_hidden_layers" in case.numbers else "n_layer"
        case = replace(case, numbers={**case.numbers, key: args.layers})
    return replace(case, budgets=tuple(args.budget or case.budgets))


def main() -> None:
    """Print the table, or run one contender."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("case", nargs="?", default="smollm2", choices=list(CASES))
    parser.add_argument("--budget", nargs="+")
    parser.add_argument("--layers", type=int, help="fewer, to look at the command")
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--program", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--run-torch", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    case = asked(args)
    if args.program is not None:
        print(json.dumps(run_program(case, args.program)))
    elif args.run_torch:
        print(json.dumps(run_torch(case)))
    else:
        again = [args.case, *(("--layers", str(args.layers)) if args.layers else ())]
        for line in lines(case, again, not args.no_torch):
            print(line, flush=True)


if __name__ == "__main__":
    main()
