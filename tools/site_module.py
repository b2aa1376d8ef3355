"""The site's first page: the digits network, trained, with a field to draw in.

    python -m tools.site_module DIR     writes DIR/digits.html

mkdocs calls the two functions at the end. digits.html is self-contained: it works on any static
host, and from a disk.
"""

import argparse
import logging
import tempfile
from pathlib import Path
from typing import Any

import edgetrain as et
from edgetrain.api import bundle
from edgetrain.bundle import module, page
from edgetrain.data.registry import open_data
from edgetrain.errors import UsageError

ROOT = Path(__file__).resolve().parents[1]
NAME = "digits.html"
MARK = "<!-- digits: tools/site_module.py puts the network here -->"
_EPOCHS = 10
_SGD = {"lr": 0.03, "momentum": 0.9, "nesterov": True, "weight_decay": 5e-4}

SECTION = f"""\
## Draw a digit

<iframe src="{NAME}?small" title="a network that trains in this page" loading="lazy"
  style="width: 100%; height: 34rem; border: 1px solid #8884; border-radius: 6px"></iframe>

This network was trained in Python and goes on training in this page: if it is wrong, click the
right digit. Nothing you draw leaves your browser. [Train in a browser](browser.md) shows how to do
this with your own model."""

_WITHOUT = """\
This copy of the site was built without a linker for WebAssembly, so the network that trains in
this page is missing. [Train in a browser](browser.md) shows how to make it."""


def missing() -> str:
    """Why the page cannot be made here; "" if it can."""
    try:
        module.linker()
    except UsageError as error:
        return str(error)
    return ""


def digits_page() -> bytes:
    """Train the digits here and create a page that continues the training."""
    with tempfile.TemporaryDirectory() as place:
        folder, optimizer = Path(place), et.SGD(**_SGD)
        model = et.load_onnx(ROOT / "examples" / "digits" / "model.onnx")
        trainer = et.Trainer(et.compile(model, minibatch=32, optimizer=optimizer), data="digits")
        trainer.fit(epochs=_EPOCHS)
        trainer.export_onnx(folder / "trained.onnx")
        program = et.compile(
            et.load_onnx(folder / "trained.onnx"),
            minibatch=32,
            target="wasm32",
            optimizer=optimizer,
        )
        bundle(program, folder / "out", name="digits", data=open_data("digits"))
        parts = {kind: (folder / "out" / f"digits.{kind}").read_bytes() for kind in page.INSIDE}
    return page.page("digits", own=True, inside=parts)


def shown(text: str, why: str) -> str:
    """The first page's text with the network, or with a note that it is missing."""
    assert text.count(MARK) == 1
    return text.replace(MARK, _WITHOUT if why else SECTION)


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", metavar="DIR", type=Path, help="directory to write to")
    folder = parser.parse_args().folder
    if why := missing():
        raise SystemExit(f"{NAME}: {why}")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / NAME).write_bytes(digits_page())


def on_files(files: Any, config: Any) -> Any:
    """mkdocs hook: add the page to the site's files."""
    if why := missing():
        logging.getLogger("mkdocs.hooks").info("%s was not made: %s", NAME, why)
        return files
    from mkdocs.structure.files import File

    files.append(File.generated(config, NAME, content=digits_page()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """mkdocs hook: insert the network into the first page."""
    return shown(markdown, missing()) if page.file.src_uri == "index.md" else markdown


if __name__ == "__main__":
    main()
