"""The web page of a WebAssembly module, which trains and takes your own samples, in one file."""

import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence

from .names import TEMPLATES

NAME = "index.html"
INSIDE = ("wasm", "js", "samples")  # kinds of files that a page can embed
_PART = re.compile(r"^/\* (page_?\w*\.js) \*/$", re.M)  # replaced by a file
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
      own: without a samples file, train only on the user's own samples; False: train on generated
        ones.
      names: class names.
      rate: samples per second of the sounds it is trained on.
      label: name of the target column in tables that the page opens; None: the last column.
      inside: contents of NAME.wasm, NAME.js and NAME.samples by kind (`INSIDE`), to embed in the
        page so it also works from a disk; None: the page loads them as separate files.
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
