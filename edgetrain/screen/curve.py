"""The loss of a run as a picture in its directory."""

from pathlib import Path

from ..history import History

CURVE_FILE = "loss.svg"


def draw_curve(history: History, directory: Path) -> None:
    """Write the loss over steps, and of evaluations where there were some.

    Without the room that draws (edgetrain-runtime on a device) nothing is written.

    Raises:
      RunError: the file cannot be written.
    """
    try:
        from ..report.charts import Series, line_chart
        from ..report.writing import write_picture
    except ModuleNotFoundError:
        return
    steps, columns = history.steps, history.columns
    if not steps["step"]:
        return
    series = [Series("training loss", steps["step"], steps["loss"])]
    if "val_loss" in columns:
        series.append(Series("evaluation loss", columns["step"], columns["val_loss"]))
    picture = line_chart(series, "loss", tall=240, last=history.last)
    write_picture(picture, directory / CURVE_FILE)
