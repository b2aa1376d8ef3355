"""What a command does not load, and that it is there when it is asked for."""

import subprocess
import sys

SCRIPT = """
import sys
from edgetrain.cli.parser.lean_imports import load_later
load_later()
import pathlib
assert "ipaddress" not in sys.modules
import urllib.parse
print(pathlib.PurePosixPath("/a b").as_uri())
print(urllib.parse.urlsplit("http://[::1]:80/x").hostname, "ipaddress" in sys.modules)
from urllib.parse import quote
print(quote("a b"), urllib.parse is not None)
"""


def test_what_is_loaded_later_is_whole() -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["file:///a%20b", "::1 True", "a%20b True"]
