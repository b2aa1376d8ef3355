"""Serves files from memory as a website on this machine."""

import errno
import http.server
import socket
import sys
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from ...errors import UsageError

_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json",
    "wasm": "application/wasm",
}
LOCAL = ("localhost", "127.0.0.1", "::1")
# The page's own scripts and workers; nothing from or to another site.
_POLICY = (
    "default-src 'self' blob:; script-src 'self' blob: 'unsafe-inline' 'wasm-unsafe-eval'; "
    "style-src 'unsafe-inline'; img-src 'self' blob: data:; frame-ancestors 'self'"
)


class Server(http.server.ThreadingHTTPServer):
    """Serves `files` by name; / is `index.html`.

    Raises:
      UsageError: the address can't be used.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, host: str, port: int) -> None:
        self.files: Mapping[str, bytes] = {}
        self.local = host in LOCAL
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), _Handler)
        except (OSError, TypeError, ValueError) as error:  # or a host that has no encoding
            raise UsageError(_refused(host, port, error)) from error
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self.server_port}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore disconnecting browsers."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def _refused(host: str, port: int, error: Exception) -> str:
    if not isinstance(error, OSError):
        return f"host {host!r}: not an address. Choose one of this machine with --host."
    if error.errno == errno.EADDRINUSE:
        return f"port {port}: already in use. Choose another with --port."
    if error.errno == errno.EACCES:
        return f"port {port}: not permitted. Choose one above 1023 with --port."
    reason = (error.strerror or str(error)).rstrip(".")
    return f"host {host!r}: {reason}. Choose an address of this machine with --host."


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Server
    server_version, sys_version = "edgetrain", ""
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:  # noqa: N802 - the library's name
        self._answer(body=True)

    def do_HEAD(self) -> None:  # noqa: N802 - the library's name
        self._answer(body=False)

    def _answer(self, *, body: bool) -> None:
        try:
            name = unquote(urlsplit(self.path).path).removeprefix("/") or "index.html"
        except ValueError:
            self.send_error(400)
            return
        if self.server.local and not self._asks_here():
            self.send_error(403, "served to this machine alone")
            return
        content = self.server.files.get(name)
        if content is None:
            self.send_error(404)
            return
        kind = _TYPES.get(name.rpartition(".")[2], "application/octet-stream")
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")  # the next model uses the same address
        self.send_header("Content-Security-Policy", _POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if body:
            self.wfile.write(content)

    def _asks_here(self) -> bool:
        """Whether the Host header names this machine: another site's name may resolve to it."""
        try:
            return urlsplit(f"//{self.headers.get('Host', '')}").hostname in LOCAL
        except ValueError:
            return False

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: a page requests four files."""
