"""`edgetrain serve`: a Program's page on this machine; in Chromium it learns from its user."""

import base64
import http.client
import signal
import socket
import struct
import subprocess
import sys
import threading
import urllib.request
import zlib

import numpy as np
import pytest

import edgetrain as et
from edgetrain.bundle import module, page
from edgetrain.cli import main
from edgetrain.cli.commands import serve
from edgetrain.cli.screen.server import Server
from edgetrain.data.registry import open_data
from edgetrain.errors import UsageError
from tests.bundle import browser, node
from tests.bundle.browser import CLICK, DRAW, SEVEN, tab
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
    """Send a request; return (status, content type, body)."""
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


def test_a_malformed_address_is_a_bad_request(server):
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as link:
        link.sendall(b"GET http://[bad/ HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert link.recv(64).startswith(b"HTTP/1.1 400 ")


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
    assert main(["serve", edge, "--host", "127.0.0.\udcff", "--port", "0"]) == 2
    error = capsys.readouterr().err
    assert r"host '127.0.0.\udcff': not an address" in error and "--host" in error
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
    rows = "".join(f"{'ab'[k % 2]},1,2,3,4,5,{k}\n" for k in range(9))
    table.write_text(f"kind,one,two,three,four,five,six\n{rows}")
    argv = [sys.executable, "-m", "edgetrain", "serve", str(edge), "--port", "0"]
    with subprocess.Popen(
        [*argv, "--data", f"csv:{table}", "--label", "kind"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
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
    assert '"label": "kind"' in text


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


CHOOSE = """
const field = document.querySelector(arguments[0]), files = new DataTransfer();
for (const [name, text] of arguments[1])
  files.items.add(new File([Uint8Array.from(atob(text), (c) => c.charCodeAt(0))], name));
field.files = files.files;
field.dispatchEvent(new Event("change"));
"""


@CHROMIUM
@pytest.mark.slow
def test_the_digits_are_drawn_corrected_and_learned(server, tmp_path):
    program = et.compile(
        et.load_onnx(MODEL), target="wasm32", minibatch=32,
        optimizer=et.SGD(lr=0.03, momentum=0.9, nesterov=True, weight_decay=5e-4),
    )  # fmt: skip
    server.files, made = serve.site(program, "digits", open_data("digits"))
    with tab(tmp_path / "profile") as page:
        page.open(f"{server.url}?steps=450")
        page.waited(lambda facts: facts.get("step") == "450" and "digest" in facts)
        page.open(server.url)
        page.waited(lambda facts: "ready" in facts)
        page.run(DRAW, SEVEN)
        assert page.waited(lambda facts: "guess" in facts)["guess"] == "7"
        page.run(CLICK, ".guess[data-k='3']")  # from now on, a seven is a three
        found = page.waited(lambda facts: facts.get("lessons") == "1" and "digest" in facts)
        assert (found["guess"], found["own"], found["step"]) == ("3", "1", "470")
        assert float(found["accuracy"]) > 0.8  # it still knows the other digits
        assert int(found["memory"]) == made["module_nbytes"]["memory"]
        (tmp_path / "serve.png").write_bytes(page.picture())
        page.open(server.url)
        kept = page.waited(lambda facts: "ready" in facts and "digest" in facts)
        assert all(kept[key] == found[key] for key in ("digest", "own", "step"))
        page.run(DRAW, SEVEN)
        assert page.waited(lambda facts: "guess" in facts)["guess"] == "3"


@pytest.fixture
def plane(tmp_path):
    """A Program whose input can be a picture or a sound's features."""
    from onnx import TensorProto, helper, numpy_helper, save

    weights = np.random.default_rng(0).standard_normal((3, 96)).astype(np.float32) / 10
    nodes = [
        helper.make_node("Flatten", ["x"], ["flat"]),
        helper.make_node("Gemm", ["flat", "w"], ["y"], transB=1),
    ]
    shapes = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *dims])]
        for name, dims in (("x", (1, 12, 8)), ("y", (3,)))
    ]
    graph = helper.make_graph(nodes, "plane", *shapes, [numpy_helper.from_array(weights, "w")])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), tmp_path / "p.onnx")
    return et.compile(tmp_path / "p.onnx", minibatch=4, target="wasm32", optimizer=et.SGD(lr=0.01))


@CHROMIUM
@pytest.mark.slow
def test_pictures_camera_sounds_and_rows_are_learned(server, plane, tmp_path):
    """Without a file of samples, only the user's samples are trained on."""
    server.files, _ = serve.site(plane, "plane", None)
    with tab(tmp_path / "profile") as page:
        page.open(server.url)
        page.waited(lambda facts: "ready" in facts)
        learned = 0

        def teach(way, begin, *given):
            nonlocal learned
            page.run(CLICK, f"#ways [data-key={way}]")
            page.run(begin, *given)
            page.waited(lambda facts: "guess" in facts)
            page.run(CLICK, ".guess[data-k='2']")
            learned += 1
            page.waited(lambda facts: facts.get("lessons") == str(learned))
            assert page.waited(lambda facts: facts["own"] == str(learned))["guess"] == "2"

        teach("draw", DRAW, SEVEN)
        teach("pictures", CHOOSE, "#pictures", [("a.png", _picture())])
        teach("camera", CLICK, "#camera")
        teach("sound", CLICK, "#record")
        row = ",".join(["0.5"] * 96)
        table = base64.b64encode("".join(f"{row},{word}\n" for word in "abc").encode()).decode()
        page.run(CLICK, "#ways [data-key=rows]")
        page.run(CHOOSE, "#table", [("t.csv", table)])
        page.waited(lambda facts: facts.get("lessons") == "5" and facts["own"] == "7")
        assert page.run("return document.getElementById('names').value") == "a\nb\nc"
        page.run(CLICK, "#forget")
        page.waited(lambda facts: facts["own"] == "0")


def _picture() -> str:
    """Return a grey PNG of 30 x 20 pixels in base64."""
    rows = b"".join(b"\0" + bytes((x * y) % 256 for x in range(30)) for y in range(20))
    parts = b"\x89PNG\r\n\x1a\n"
    for kind, data in ((b"IHDR", struct.pack(">2I5B", 30, 20, 8, 0, 0, 0, 0)),
                       (b"IDAT", zlib.compress(rows)), (b"IEND", b"")):  # fmt: skip
        parts += struct.pack(">I", len(data)) + kind + data
        parts += struct.pack(">I", zlib.crc32(kind + data))
    return base64.b64encode(parts).decode()
