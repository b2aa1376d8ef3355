"""`train --report`: a page of the run, updated while it trains."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...errors import EdgetrainError
from ...program import Program
from ...program.atomic import check_target
from ...runtime.run.folder import RunFolder
from ...runtime.training.trainer import Trainer
from ...screen.progress import Event, Progress
from ..parser.namespace import Namespace

if TYPE_CHECKING:
    from ...report.run_page import RunReport


class Reported:
    """Passes events to the screen and, if requested, to the page."""

    def __init__(self, progress: Progress, report: "RunReport | None" = None) -> None:
        self._progress, self._report = progress, report

    def __call__(self, event: Event) -> None:
        if self._report is not None:
            self._report(event)
        self._progress(event)

    def watch(self, trainer: Trainer) -> None:
        """Include the sparse layers and labels of this trainer from now on."""
        if self._report is not None:
            self._report.watch(
                lambda: nonzeros(trainer), lambda: trainer.labels, lambda: trainer.history
            )


@contextlib.contextmanager
def reported(
    progress: Progress, arguments: Namespace, program: Program, folder: RunFolder
) -> Iterator[Reported]:
    """Write the page when the run ends, whatever the reason."""
    if arguments.report is None:
        yield Reported(progress)
        return
    from ...report.run_page import RunReport
    from ...report.scene import title_of

    title = title_of(arguments.model or folder.path)
    report = RunReport(arguments.report, program, folder.path, title)
    try:
        yield Reported(progress, report)
    except BaseException as error:
        with contextlib.suppress(EdgetrainError):  # report what ended the run instead
            report.close(" ".join(str(error).split()) or type(error).__name__)
        raise
    report.close()


def check_report(arguments: Namespace) -> None:
    """Refuse an unusable file name before training."""
    if arguments.report is not None:
        from ...report.writing import check_ending

        check_ending(arguments.report, "--report", (".html",))
        check_target(arguments.report, "--report")


def nonzeros(trainer: Trainer) -> list[tuple[str, int, int]]:
    """(name, current nonzeros, elements) of each sparse layer."""
    from ...formats.csr import pointers_name

    session: Any = trainer.session
    rows = []
    for layer in session.layers:
        pointers = session.values[pointers_name(layer.name)]
        rows.append((layer.name, int(pointers[-1] - pointers[0]), layer.size))
    return rows
