"""Serves a folder as a site and opens it in headless Chromium, through chromedriver's protocol."""

import base64
import contextlib
import http.server
import json
import re
import shutil
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

_ARGUMENTS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--window-size=1000,1300",
)  # fmt: skip
# Scripts for bundle pages: draw lines of points from 0 to 1; click the element of a selector.
DRAW = """
const field = document.getElementById("draw"), box = field.getBoundingClientRect();
field.setPointerCapture = undefined;
for (const line of arguments[0]) line.forEach(([x, y], k) => field.dispatchEvent(
  new PointerEvent(k ? "pointermove" : "pointerdown", { buttons: 1, pointerId: 1,
    clientX: box.left + x * box.width, clientY: box.top + y * box.height })));
field.dispatchEvent(new PointerEvent("pointerup", { pointerId: 1 }));
"""
SEVEN = [[(0.3, 0.2), (0.7, 0.2), (0.4, 0.8)]]
CLICK = "document.querySelector(arguments[0]).click()"


def missing() -> str:
    """Return why no page can be opened here, or ""."""
    absent = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"{', '.join(absent)} not installed; on Debian: chromium, chromium-driver" * bool(absent)


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder; yield the site's address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=folder))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Tab:
    """A browser tab, controlled by WebDriver commands."""

    def __init__(self, address: str, session: str) -> None:
        self._at = f"{address}/session/{session}"

    def open(self, url: str) -> None:
        """Open an address, discarding the current page at once."""
        asked(f"{self._at}/url", {"url": url})

    def facts(self) -> dict[str, str]:
        """Return what the page reports in its body's data attributes."""
        return self.run("return {...document.body?.dataset}")

    def run(self, script: str, *arguments: object) -> Any:
        """Run a script in the page; return its result."""
        return asked(f"{self._at}/execute/sync", {"script": script, "args": arguments})

    def waited(
        self, holds: Callable[[dict[str, str]], Any], seconds: float = 300
    ) -> dict[str, str]:
        """Wait until the page's facts satisfy `holds`; return them.

        Raises:
          AssertionError: timeout, or the page reports an error.
        """
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = self.facts()
            assert "error" not in found, found["error"]
            if holds(found):
                return found
            time.sleep(0.05)
        raise AssertionError(f"not within {seconds} s: {found}")

    def picture(self) -> bytes:
        """Return a screenshot as PNG."""
        return base64.b64decode(asked(f"{self._at}/screenshot"))


@contextlib.contextmanager
def tab(profile: Path) -> Iterator[Tab]:
    """Start Chromium with its files in `profile`; yield a tab."""
    driver = subprocess.Popen(
        ["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert driver.stdout is not None
        port = next(
            m[1] for m in map(re.compile(r"successfully on port (\d+)").search, driver.stdout) if m
        )
        address = f"http://127.0.0.1:{port}"
        options = {"args": [*_ARGUMENTS, f"--user-data-dir={profile}"]}
        given = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}}
        session = asked(f"{address}/session", given)["sessionId"]
        try:
            yield Tab(address, session)
        finally:
            asked(f"{address}/session/{session}", method="DELETE")
    finally:
        driver.terminate()
        driver.communicate()


def asked(url: str, body: Any = None, method: str | None = None) -> Any:
    """Send a WebDriver command; return the value of the answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)["value"]
