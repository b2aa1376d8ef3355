"""Compares a new file with its module in evaluation mode, so that no wrong translation passes.

The file runs in another runtime (parity_file.py) with dropout off and running statistics, the
module on the same inputs. If they differ, the module's own code in training mode decides who is to
blame: its layers still evaluate, but `self.training` is true. If that gives the file's numbers, or
random ones, the module does something else in evaluation: a warning. Otherwise the file is wrong.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from edgetrain.errors import ModelError
from edgetrain.exporters.torch_names import Inventory
from edgetrain.exporters.torch_random import module_kept
from edgetrain.ops.model import Model

Inputs = tuple[Tensor, ...]
Arrays = list[np.ndarray]
_ON_DEVICES = 1e-2  # products on a GPU may round their operands to 10 bits


def check_file(path: Path, module: nn.Module, inputs: Inputs, inventory: Inventory) -> str:
    """Compare every output of the file with the module's in evaluation mode.

    Nothing is compared if outputs are random, the module doesn't run in evaluation mode or returns
    other outputs there, or no runtime can run the file.

    Args:
      path: the file.
      inputs: example inputs; floats that are all equal are replaced by random ones, which tell
        more.
      inventory: of the module, complete.
    Returns:
      A warning, or "".
    Raises:
      ModelError: the file does not compute what the module does.
    """
    if inventory.random or inventory.masks_evaluate or inventory.drawn_outside:
        return ""
    inputs = tuple(_varied(tensor) for tensor in inputs)
    wanted = _outputs(module, inputs, training=False)
    if wanted is None or not _same(wanted, _outputs(module, inputs, training=False)):
        return ""
    run = _Run(path, inputs, inventory)
    departed = run.departure(wanted)
    if not departed:
        return ""
    found = f"module '{inventory.owner}': {departed} in evaluation mode"
    trained = _outputs(module, inputs, training=True)
    again = _outputs(module, inputs, training=True)
    if trained is not None and _same(trained, again) and run.departure(trained):
        raise ModelError(
            f"{found}. torch's exporter translated an op wrongly. Replace it, or pass check=False "
            "to write the file anyway."
        )
    if inventory.masks:
        return (
            f"{found}. It draws a mask of 0 and 1 in training, which the file scales by the share "
            "of ones in evaluation. Divide the mask by that share, or pass it as an input."
        )
    return (
        f"{found}: its code depends on self.training. In the file, evaluation runs the code for "
        "training. Move what differs out of the module, or accept it."
    )


def _varied(tensor: Tensor) -> Tensor:
    if not tensor.is_floating_point() or tensor.numel() < 2 or tensor.unique().numel() > 1:
        return tensor
    array = np.random.default_rng(0).standard_normal(tuple(tensor.shape))
    return torch.from_numpy(array).to(tensor)


def _outputs(module: nn.Module, inputs: Inputs, *, training: bool) -> Arrays | None:
    """The module's outputs with layers of torch in evaluation mode, and other parts, if `training`,
    in training mode; None if it fails."""
    try:
        with module_kept(module), _exact(), torch.no_grad():
            module.train(training)
            for part in module.modules():
                part.training = part.training and not _is_evaluated(part)
            result = module(*(tensor.clone() for tensor in inputs))
    except Exception:  # any error of the module
        return None
    return [_array(leaf) for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]


def _is_evaluated(part: nn.Module) -> bool:
    """Whether it is a layer of torch, without code in front that depends on the mode, such as
    spectral_norm."""
    home = type(part).__module__
    own = home.startswith("torch.") and not home.startswith("torch.nn.utils.")
    return own and not part._forward_pre_hooks


@contextlib.contextmanager
def _exact() -> Iterator[None]:
    """Without the fast path of transformers, which gives zeros at padded positions."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def _array(tensor: Tensor) -> np.ndarray:
    tensor = tensor.detach().cpu()
    result: np.ndarray = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return result.copy()


def _same(first: Arrays, second: Arrays | None) -> bool:
    if second is None or len(first) != len(second):
        return False
    pairs = zip(first, second, strict=True)
    return all(np.array_equal(a, b, equal_nan=a.dtype.kind in "fc") for a, b in pairs)


class _Run:
    """One run of the file, to compare with several."""

    def __init__(self, path: Path, inputs: Inputs, inventory: Inventory) -> None:
        from edgetrain.exporters.parity_file import OwnFile  # loads onnx

        names = tuple(inventory.must_survive())
        self._file = OwnFile(Model(path.name, (), {}, (), (), 0, names, (), source=str(path)))
        self._found: dict[str, np.ndarray] = {}
        self._given: dict[str, np.ndarray] = {}
        self._on_cpu = all(tensor.device.type == "cpu" for tensor in inputs)
        if len(self._file.inputs) == len(inputs):
            pairs = zip(self._file.inputs, inputs, strict=True)
            self._given = {name: _array(tensor) for name, tensor in pairs}
            self._found = self._file.run(self._given)

    def departure(self, wanted: Arrays) -> str:
        """How the first output that differs does so, or ""."""
        from edgetrain.exporters.parity_forward import error_of, judged

        if len(wanted) != len(self._found):
            return ""
        true = dict(zip(self._found, wanted, strict=True))
        names = [name for name, array in true.items() if _is_judged(array)]
        for name in names:  # whatever roundings it depends on
            if not _is_finite(self._found[name]):
                return f"output {name!r} of the file has NaN or infinity, unlike the module's"
        pairs = [(self._found[name], true[name]) for name in names]
        errors = [error_of(*pair) for pair in pairs]
        floor = 0.0 if self._on_cpu else _ON_DEVICES
        tolerances = judged(self._file, self._given, self._found, names, errors)
        for name, error, tolerance in zip(names, errors, tolerances, strict=True):
            if tolerance is not None and error > max(tolerance, floor):
                largest = float(np.abs(true[name].astype(np.float64)).max(initial=0.0))
                return (
                    f"output {name!r} of the file differs by {error:.2g} times its largest number "
                    f"({largest:.4g}) from the module's"
                )
        return ""


def _is_judged(array: np.ndarray) -> bool:
    return array.size > 0 and _is_finite(array)


def _is_finite(array: np.ndarray) -> bool:
    return array.dtype.kind not in "fc" or bool(np.isfinite(array).all())
