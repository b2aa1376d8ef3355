"""Optional packages: which one is missing, and how to install it."""

import importlib.util

from ..errors import UsageError

# For a command or module that edgetrain-runtime lacks; the two must not be installed together.
INSTEAD = (
    "Install edgetrain instead: pip uninstall edgetrain-runtime, then pip install edgetrain-*.whl"
)

# Module -> pip name of the package that provides it.
_BRINGS = {
    "onnx": "onnx", "google": "onnx", "ml_dtypes": "onnx", "onnx_ir": "edgetrain[torch]",
    "onnxscript": "edgetrain[torch]", "torch": "edgetrain[torch]", "numba": "numba",
    "llvmlite": "llvmlite", "scipy": "scipy", "rich": "rich", "matplotlib": "edgetrain[plot]",
    "PIL": "edgetrain[pictures]", "flwr": "edgetrain[flower]", "pandas": "edgetrain[pandas]",
    "IPython": "ipython", "edgetrain": "edgetrain",
}  # fmt: skip


def is_whole() -> bool:
    """Whether all of edgetrain is installed, not only edgetrain-runtime."""
    return importlib.util.find_spec("edgetrain.compiler") is not None


def explained(error: ModuleNotFoundError) -> UsageError:
    """The error for a missing package.

    Raises:
      ModuleNotFoundError: `error` itself, if it is not about an optional package.
    """
    module = error.name or ""
    brings = _BRINGS.get(module.partition(".")[0])
    if brings is None:
        raise error
    what = module.partition(".")[0]
    if what == "edgetrain":
        return UsageError(f"{module}: not part of edgetrain-runtime. {INSTEAD}")
    quoted = f"'{brings}'" if "[" in brings else brings
    return UsageError(f"{what} is needed but not installed. Run: pip install {quoted}")
