"""A single HTML file of headings, charts and tables that loads nothing and opens from a disk.

Names in it may come from untrusted files. HTML is escaped, the script's data is JSON without `<`,
and a content security policy allows only the page's own script, by digest.
"""

import base64
import json
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from ..program.atomic import write_atomically
from ..units import finite
from ..units.sha import sha256
from .canvas import Definitions, Picture, svg, variables
from .scene import clean, escape

WIDE, NARROW = 960, 360  # pixels of a chart; one of the two is shown


class Page:
    """A page, built from top to bottom.

    Args:
      title: the page's heading.
      subtitle: one sentence.
    """

    def __init__(self, title: str, subtitle: str) -> None:
        self._title, self._definitions = title, Definitions()
        self._body = [f"<h1>{escape(clean(title))}</h1>", f"<p>{escape(subtitle)}</p>"]
        self._data: dict[str, Any] = {}

    def facts(self, rows: Sequence[tuple[str, str]]) -> None:
        """Add the key figures: (name, value)."""
        cells = "".join(
            f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in rows
        )
        self._body.append(f'<dl class="facts">{cells}</dl>')

    def heading(self, text: str, note: str = "") -> None:
        """Start a section."""
        self._body.append(f"<h2>{escape(text)}</h2>")
        if note:
            self.text(note)

    def text(self, words: str) -> None:
        """Add a paragraph."""
        self._body.append(f"<p>{escape(words)}</p>")

    def chart(self, draw: Callable[[int], Picture]) -> None:
        """Add a chart; `draw` takes a width and is called for wide and for narrow screens."""
        drawn = [
            svg(draw(width), self._definitions, name)
            for width, name in ((WIDE, "wide"), (NARROW, "narrow"))
        ]
        self._body.append(f"<figure>{''.join(drawn)}</figure>")

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]], align: str) -> None:
        """Add a table; `align` has l or r for each column."""
        kinds = [' class="n"' if side == "r" else "" for side in align]

        def row(cells: Sequence[str], tag: str) -> str:
            result = (
                f"<{tag}{k}>{escape(clean(c))}</{tag}>" for c, k in zip(cells, kinds, strict=True)
            )
            return f"<tr>{''.join(result)}</tr>"

        body = "".join(row(cells, "td") for cells in rows)
        table = f"<table><thead>{row(head, 'th')}</thead><tbody>{body}</tbody></table>"
        self._body.append(f'<div class="scroll">{table}</div>')

    def code(self, text: str) -> None:
        """Add a command."""
        self._body.append(f"<pre>{escape(text)}</pre>")

    def data(self, name: str, value: Any) -> None:
        """Add data that the page's script shows under the pointer."""
        self._data[name] = value

    def html(self) -> str:
        """The whole file as text."""
        script = _asset("page.js")
        digest = base64.b64encode(sha256(script.encode()).digest()).decode()
        policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
        body = "\n".join(self._body)
        return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(clean(self._title))}</title>
<style>{variables()}
{_asset("page.css")}</style>
</head>
<body>
{self._definitions.svg()}
<main>
{body}
<footer>Made by edgetrain. This file is self-contained.</footer>
</main>
<div id="tip" role="status" hidden></div>
<script type="application/json" id="data">{script_json(self._data)}</script>
<script>{script}</script>
</body>
</html>
"""

    def write(self, path: str | Path) -> None:
        """Write the page completely or not at all.

        Raises:
          RunError: the file can't be written.
        """
        text = self.html().encode("utf-8", "replace")
        write_atomically(path, lambda file: file.writelines([text]))


def script_json(value: Any) -> str:
    """JSON that is safe in a script element, whatever its texts contain; NaN and infinities become
    null."""
    text = json.dumps(finite(value), separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


@cache
def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text()
