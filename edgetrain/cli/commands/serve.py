"""`serve`."""

import tempfile
from pathlib import Path
from typing import Any

from ...api import bundle as write_bundle
from ...bundle import module, page
from ...data.registry import check_label, open_data
from ...data.source import Source
from ...program import Program
from ...program.metadata import labels_of
from ...runtime.loading.program import load_program
from ...screen.waiting import waited
from ..parser.namespace import Namespace
from ..screen.server import LOCAL, Server
from .bundle import name_of

_TARGET = "wasm32"


def serve(arguments: Namespace) -> int:
    """Serve a page that trains a Program, until Ctrl-C."""
    with waited("serve: loading"):
        module.linker()  # fail early
        program = load_program(arguments.model)
        if arguments.data:
            check_label(arguments.data, arguments.label)
        data = open_data(arguments.data, label=arguments.label) if arguments.data else None
    with Server(arguments.host, arguments.port) as server:
        with waited("serve: making the page"):
            server.files, made = site(
                program, name_of(arguments.model), data, arguments.label, arguments.length
            )
        print(_said(server, made), flush=True)
        if arguments.open:
            _open(server.url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("\nstopped")
    return 0


def site(
    program: Program,
    name: str,
    data: Source | None,
    label: str | None = None,
    length: int | None = None,
) -> tuple[dict[str, bytes], dict[str, Any]]:
    """(files of a Program's page by name, manifest)."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "site")
        made = write_bundle(program, folder, name=name, target=_TARGET, data=data, length=length)
        files = {path.name: path.read_bytes() for path in folder.iterdir()}
    labels = (data.labels if data is not None else None) or labels_of(program.onnx) or ()
    rate = data.rate if data is not None else None
    files[page.NAME] = page.page(name, own=True, names=labels, rate=rate, label=label)
    return files, made


def _said(server: Server, made: dict[str, Any]) -> str:
    nbytes = made["module_nbytes"]
    lines = [
        f"{server.url}  Ctrl-C stops",
        f"memory {nbytes['memory']:,} bytes in the page; {nbytes['gzipped']:,} bytes of code "
        "(gzipped)",
    ]
    if server.server_address[0] not in LOCAL:
        lines.append(
            "everyone who reaches this address sees the page; browsers give it no camera and "
            "microphone without https"
        )
    return "\n".join(lines)


def _open(url: str) -> None:
    import webbrowser

    if not webbrowser.open(url):
        print("--open: no browser was found; open the address yourself")
