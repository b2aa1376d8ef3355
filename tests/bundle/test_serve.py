"""`edgetrain serve`: a Program's page on this machine; in Chromium it learns what it is shown."""

import http.client
import signal
import socket
import subprocess
import sys
import threading
import urllib.request

import numpy as np
import pytest

import edgetrain as et
from edgetrain.bundle import module, page
from edgetrain.cli import main
from edgetrain.cli.commands import serve
from edgetrain.cli.screen.server import Server
from edgetrain.errors import UsageError
from tests.bundle import browser, node
from tests.bundle.browser import tab
from tests.digits_runs import MODEL

FILES = {"index.html": b"<p>page", "net.wasm": b"\0asm", "net.js": b"1;", "net.samples": b"xy"}
WHY = browser.missing() or node.missing()
CHROMIUM = pytest.mark.skipif(bool(WHY), reason=WHY or "Chromium is here")


@pytest.fixture
def server():
    with Server("127.0.0.1", 0) as made:
        made.files = FILES
        thread = threading.Thread(target=made.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def asked(server, path, method="GET", **headers):
    """(status, content type, body) of an answer."""
    link = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    try:
        link.request(method, path, headers=headers)
        answer = link.getresponse()
        return answer.status, answer.getheader("Content-Type"), answer.read()
    finally:
        link.close()


@pytest.mark.parametrize(
    ("path", "status", "kind", "body"),
    [
        ("/", 200, "text/html", b"<p>page"),
        ("/?steps=3", 200, "text/html", b"<p>page"),
        ("/index.html", 200, "text/html", b"<p>page"),
        ("/net.wasm", 200, "application/wasm", b"\0asm"),
        ("/net%2ewasm", 200, "application/wasm", b"\0asm"),
        ("/net.js", 200, "text/javascript", b"1;"),
        ("/net.samples", 200, "application/octet-stream", b"xy"),
        ("/other", 404, "text/html", None),
        ("/../../etc/passwd", 404, "text/html", None),
        ("/%2e%2e/%2e%2e/etc/passwd", 404, "text/html", None),
        ("//etc/passwd", 404, "text/html", None),
    ],
)
def test_a_server_has_these_files_and_no_others(server, path, status, kind, body):
    found = asked(server, path)
    assert found[0] == status and found[1].startswith(kind)
    assert body is None or found[2] == body


def test_a_server_is_asked_for_files_alone(server):
    assert asked(server, "/", "HEAD") == (200, "text/html; charset=utf-8", b"")
    assert asked(server, "/", "POST")[0] == 501 and asked(server, "/", "DELETE")[0] == 501


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost:8000", 200), ("127.0.0.1", 200), ("[::1]:8000", 200), ("evil.example", 403),
     ("127.0.0.1.evil.example:8000", 403), ("[", 403), ("", 403)],
)  # fmt: skip
def test_a_name_of_another_site_that_leads_here_is_refused(server, host, status):
    assert asked(server, "/", Host=host)[0] == status


def test_pages_reach_no_other_site(server):
    with urllib.request.urlopen(server.url) as answer:
        policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy and "http" not in policy and "*" not in policy
    text = page.page("net").decode()
    assert "http://" not in text and "https://" not in text


def test_an_address_that_cannot_be_used_is_refused(module_program, tmp_path, capsys):
    if node.missing():
        pytest.skip(node.missing())
    edge = str(module_program.save(tmp_path / "small.edge"))
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        assert main(["serve", edge, "--port", port]) == 2
        error = capsys.readouterr().err
        assert f"port {port}" in error and "--port" in error
    assert main(["serve", edge, "--host", "192.0.2.1", "--port", "0"]) == 2
    error = capsys.readouterr().err
    assert "192.0.2.1" in error and "--host" in error
    assert main(["serve", edge, "--port", "65536"]) == 2


def test_a_missing_linker_is_said_before_anything_else(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(module.shutil, "which", lambda name: None)
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    assert main(["serve", str(tmp_path / "none.edge")]) == 2
    error = capsys.readouterr().err
    assert "lld" in error and "edgetrain[zig]" in error


def test_a_program_for_another_processor_is_refused(two_layers, tmp_path, capsys):
    if node.missing():
        pytest.skip(node.missing())
    program = et.compile(two_layers, minibatch=8, target="x86-64-v3", threads=1)
    edge = program.save(tmp_path / "other.edge")
    assert main(["serve", str(edge), "--port", "0"]) == 2
    error = capsys.readouterr().err
    assert "x86-64-v3" in error and "--target wasm32" in error


def test_a_page_is_served_until_it_is_interrupted(module_program, tmp_path):
    if node.missing():
        pytest.skip(node.missing())
    edge = module_program.save(tmp_path / "My Net.edge")
    table = tmp_path / "rows.csv"
    table.write_text("".join(f"1,2,3,4,5,{k},{'ab'[k % 2]}\n" for k in range(9)))
    argv = [sys.executable, "-m", "edgetrain", "serve", str(edge), "--port", "0"]
    with subprocess.Popen(
        [*argv, "--data", f"csv:{table}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        url = process.stdout.readline().split()[0]
        with urllib.request.urlopen(url) as answer:
            text = answer.read().decode()
        with urllib.request.urlopen(f"{url}my_net.samples") as answer:
            assert len(answer.read()) == 32 + 9 * 28
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0 and out.endswith("\nstopped\n") and "Traceback" not in err
    assert '"name": "my_net", "own": true, "names": ["a", "b"]' in text


def test_open_opens_a_browser(module_program, tmp_path, monkeypatch, capsys):
    if node.missing():
        pytest.skip(node.missing())
    opened = []

    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or False)
    monkeypatch.setattr(Server, "serve_forever", interrupted)
    monkeypatch.setattr(serve, "site", lambda *given: ({}, {"module_nbytes": dict.fromkeys(
        ("memory", "gzipped"), 1)}))  # fmt: skip
    edge = str(module_program.save(tmp_path / "small.edge"))
    assert main(["serve", edge, "--port", "0"]) == 0 and opened == []
    assert main(["serve", edge, "--port", "0", "--open"]) == 0 and len(opened) == 1
    assert "--open" in capsys.readouterr().out


def test_a_free_port_is_in_the_address():
    with Server("127.0.0.1", 0) as made:
        assert made.url == f"http://127.0.0.1:{made.server_port}/" and made.server_port
    with pytest.raises(UsageError, match="host 'no such name'"):
        Server("no such name", 0)
