"""Packages that are only needed for some of the work: which is missing, and what brings it."""

from ..errors import UsageError

# Module -> what pip calls what brings it.
_BRINGS = {
    "onnx": "onnx", "google": "onnx", "ml_dtypes": "onnx", "onnx_ir": "edgetrain[torch]",
    "onnxscript": "edgetrain[torch]", "torch": "edgetrain[torch]", "numba": "numba",
    "llvmlite": "llvmlite", "scipy": "scipy", "rich": "rich", "matplotlib": "edgetrain[plot]",
    "PIL": "edgetrain[pictures]", "flwr": "edgetrain[flower]", "pandas": "edgetrain[pandas]",
    "IPython": "ipython",
    "edgetrain": "edgetrain",
}  # fmt: skip


def explained(error: ModuleNotFoundError) -> UsageError:
    """What to say of a package that is missing.

    Raises:
      ModuleNotFoundError: `error` itself, where no package that this one uses is missing.
    """
    module = error.name or ""
    brings = _BRINGS.get(module.partition(".")[0])
    if brings is None:
        raise error
    what = module.partition(".")[0]
    if what == "edgetrain":
        what = f"{module}, which edgetrain-runtime does not have,"
    quoted = f"'{brings}'" if "[" in brings else brings
    return UsageError(f"{what} is needed for this and not installed. Run: pip install {quoted}")
