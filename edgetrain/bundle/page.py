"""The page of a WebAssembly module: training, and samples of one's own, in one file."""

import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence

from .names import TEMPLATES

NAME = "index.html"
INSIDE = ("wasm", "js", "samples")  # kinds of files that a page can hold
_PART = re.compile(r"^/\* (page_?\w*\.js) \*/$", re.M)  # stands for a file
_TITLE, _SETTINGS = "NAME_OF_NET", "null /* settings */"


def page(
    name: str,
    *,
    own: bool = False,
    names: Sequence[str] = (),
    rate: int | None = None,
    label: str | None = None,
    inside: Mapping[str, bytes] | None = None,
) -> bytes:
    """index.html of the module NAME.

    Args:
      own: train on samples of the page's user alone if there is no file of samples; else on
        made-up ones.
      names: of the classes.
      rate: samples per second of the sounds it is trained on.
      label: the targets' column in tables that it opens, by its name; None: the last.
      inside: contents of NAME.wasm, NAME.js and NAME.samples by kind (`INSIDE`), which the page
        then holds itself, so that it also works from a disk; None: they are beside it.
    """
    settings = {"name": name, "own": own, "names": list(names), "rate": rate}
    if label is not None:
        settings["label"] = label
    if inside is not None:
        settings["inside"] = {kind: b64encode(code).decode() for kind, code in inside.items()}
    text = _PART.sub(
        lambda found: (TEMPLATES / found[1]).read_text(), (TEMPLATES / "page.html").read_text()
    )
    said = json.dumps(settings).replace("<", "\\u003c")
    assert _SETTINGS in text
    return text.replace(_SETTINGS, said, 1).replace(_TITLE, name).encode()
