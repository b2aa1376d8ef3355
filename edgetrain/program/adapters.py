"""Low-rank adapters of a trained Program: merged into the weights, or separate as in peft."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ..errors import ProgramError
from ..formats import decoded
from ..units.public import as_path
from ..units.wording import listed
from .atomic import unwritable, write_atomically
from .finite import nonfinite
from .mapped_file import check_files
from .program import Program

WEIGHTS_FILE, CONFIG_FILE = "adapter_model.safetensors", "adapter_config.json"
_PREFIX = "base_model.model."


def adapters_of(program: Program) -> tuple[tuple[str, str, str, bool], ...]:
    """(weight, A, B, whether the weight's layout is [in, out]) for each adapted weight."""
    result = program.recipe.get("lora") or {"layers": ()}
    return tuple((w, a, b, bool(turned)) for w, a, b, turned in result["layers"])


def merged(program: Program, state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The state plus the Program's frozen weights, with adapters merged into the adapted ones.

    Args:
      state: decoded arrays by name, without mapped weights.
    Raises:
      RunError: the Program file was truncated or overwritten.
    """
    out = dict(state)
    if program.mapped:
        check_files(program.init)
    for slot in program.mapped:
        if slot.role == "parameter":
            out[slot.name] = decoded(program.init[slot.name], slot.shape)
    for weight, a, b, turned in adapters_of(program):
        lora = program.recipe["lora"]
        scale = np.float32(lora["alpha"] / lora["r"])
        high, low = (np.asarray(out.pop(name), np.float32) for name in (b, a))
        delta = scale * (high @ low)
        out[weight] = np.asarray(out[weight], np.float32) + (delta.T if turned else delta)
    return out


def write_adapter(program: Program, state: Mapping[str, np.ndarray], directory: str | Path) -> Path:
    """Write adapter_model.safetensors and adapter_config.json for peft.

    Modules that are trained as a whole, such as a classification head, are `modules_to_save`.

    Args:
      state: the state in a checkpoint.
    Returns:
      The directory.
    Raises:
      ProgramError: the Program has no adapters, or trains parameters that peft can't save.
      RunError: a value is not finite, or a file can't be written.
    """
    directory = as_path("export_adapter", directory, "a directory")
    layers = adapters_of(program)
    if not layers:
        raise ProgramError(
            f"Program of {program.model_name!r}: no adapters. Compile the model with --lora."
        )
    shapes = {slot.name: slot.shape for slot in program.lasting}
    modules = _whole_modules(program, layers)
    names = [name for _, a, b, _ in layers for name in (a, b)]
    names += [name for name in shapes if _module(name) in modules]
    if program.mapped:
        check_files(program.init)
    tensors = {}
    for name in names:
        stored = state[name] if name in state else program.init[name]
        array = decoded(stored, shapes[name])
        tensors[_PREFIX + name] = np.ascontiguousarray(array, "<f4")
    wrong = nonfinite(tensors)
    if wrong:
        raise unfinite(directory, wrong)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise unwritable(directory, "-o", error) from error
    text = json.dumps(_config(program, layers, modules), indent=2) + "\n"
    files: dict[str, Callable[[BinaryIO], None]] = {
        WEIGHTS_FILE: lambda file: _safetensors(file, tensors),
        CONFIG_FILE: lambda file: _put(file, text.encode()),
    }
    for name, write in files.items():
        write_atomically(directory / name, write, links=False)
    return directory


def _whole_modules(program: Program, layers) -> list[str]:
    """Modules with parameters or running statistics that training changes besides the adapters.

    Raises:
      ProgramError: one has no module, is sparse, or its module contains an adapted layer.
    """
    facts = program.account.get("training", {})
    changed = [
        name for kind in ("trained", "moves") for name in facts.get(kind, {}).get("names", ())
    ]
    own = {name for _, a, b, _ in layers for name in (a, b)}
    rest = [name for name in changed if name not in own]
    stored = {slot.name for slot in program.lasting}
    wrong = [
        name
        for name in rest
        if name not in stored
        or not _module(name)
        or any(weight.startswith(_module(name) + ".") for weight, *_ in layers)
    ]
    if wrong:
        raise ProgramError(
            f"Program of {program.model_name!r}: {listed(wrong)}: also trained, and an adapter "
            "can't hold this. Export the whole model (export_onnx, or export without --adapter)."
        )
    return list(dict.fromkeys(map(_module, rest)))


def _module(name: str) -> str:
    """The module of a parameter."""
    return name.rpartition(".")[0]


def unfinite(path: Path, name: str) -> Exception:
    """The error for non-finite values."""
    from ..errors import RunError

    return RunError(
        f"{path}: not written, because {name!r} is not finite. Export an older checkpoint, or "
        "train with a lower learning rate."
    )


def _put(file: BinaryIO, data: bytes) -> None:
    file.write(data)


def _safetensors(file: BinaryIO, tensors: Mapping[str, np.ndarray]) -> None:
    """Write the header's length, the header, and the arrays in order."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, array in tensors.items():
        header[name] = {
            "dtype": "F32",
            "shape": list(array.shape),
            "data_offsets": [offset, offset + array.nbytes],
        }
        offset += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    for array in tensors.values():
        file.write(array.tobytes())


def _config(program: Program, layers, modules: list[str]) -> dict[str, Any]:
    """The LoRA configuration for peft; `target_modules` are full names."""
    lora = program.recipe["lora"]
    alpha = float(lora["alpha"])
    turned = {turned for *_, turned in layers}
    return {
        "peft_type": "LORA",
        "task_type": None,
        "base_model_name_or_path": None,
        "r": lora["r"],
        "lora_alpha": int(alpha) if alpha.is_integer() else alpha,
        "lora_dropout": 0.0,
        "target_modules": [weight.removesuffix(".weight") for weight, *_ in layers],
        "bias": "none",
        "fan_in_fan_out": turned == {True},
        "inference_mode": True,
        "init_lora_weights": True,
        "use_rslora": False,
        "use_dora": False,
        "modules_to_save": modules or None,
        "layers_to_transform": None,
        "layers_pattern": None,
        "rank_pattern": {},
        "alpha_pattern": {},
    }
