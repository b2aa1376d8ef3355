"""Modules that a command does not load, and that are loaded on demand."""

import subprocess
import sys
from pathlib import Path

import numpy as np

SCRIPT = """
import sys
from edgetrain.cli.parser.lean_imports import import_pathlib
before = {*sys.modules}
import_pathlib()
print({"urllib.parse", "ntpath", "fnmatch", "ipaddress"} & ({*sys.modules} - before))
import pathlib
print(pathlib.PurePosixPath("/a b").as_uri(), pathlib.PureWindowsPath("a", "b"))
import urllib.parse
print(urllib.parse.urlsplit("http://[::1]:80/x").hostname, "ipaddress" in sys.modules)
from urllib.parse import quote
print(quote("a b"), urllib.parse is sys.modules["urllib.parse"])
print(list(pathlib.Path("edgetrain").glob("__m*n__.py")), pathlib.PurePath("a.py").match("*.py"))
"""


def test_what_is_loaded_later_is_whole() -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [
        "set()", "file:///a%20b a\\b", "::1 True", "a%20b True",
        "[PosixPath('edgetrain/__main__.py')] True",
    ]  # fmt: skip


CALLER = """
import sys
sys.path.append(sys.argv[1])
import edgetrain.cli
run = edgetrain.cli._main

def main(*arguments):
    assert not [name for name, module in sys.modules.items() if type(module).__name__ == "_Later"]
    return run(*arguments)

edgetrain.cli._main = main
edgetrain.cli.main(["--version"])
import fnmatch, ntpath, urllib, urllib.parse
import pathlib
print(type(fnmatch).__name__, type(urllib.parse).__name__, ntpath.join("a", "b"))
print(pathlib.PurePosixPath("/a b").as_uri())
"""


def test_whoever_calls_a_command_keeps_modules_as_they_are() -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-c", CALLER, str(Path(np.__file__).parents[1])],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[1:] == ["module module a\\b", "file:///a%20b"]
