"""History for other libraries: a plot, and the import of what may be missing."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import History


def plotted(history: "History", axes: Any) -> Any:
    """Implements `History.plot`."""
    if axes is None:
        axes = optional_package("matplotlib.pyplot").subplots()[1]
    axes.plot(history.steps["step"], history.steps["loss"], label="loss", alpha=0.4)
    columns = history.columns
    for name in ("loss", *(["val_loss"] if "val_loss" in columns else [])):
        axes.plot(columns["step"], columns[name], marker="o", label=f"{name} per epoch")
    axes.set_xlabel("step")
    axes.set_ylabel("loss")
    axes.legend()
    return axes


def optional_package(name: str) -> Any:
    """Import an optional package.

    Raises:
      UsageError: it is not installed; the message says what to run.
    """
    from importlib import import_module

    from ..units.packages import explained

    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise explained(error) from error
