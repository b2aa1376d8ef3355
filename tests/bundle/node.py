"""Runs WebAssembly bundles in Node.js."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from edgetrain.bundle import module
from edgetrain.errors import UsageError

_BEGIN = """
const net = await import({path});
const print = (value) => console.log(JSON.stringify(value));
"""


def missing() -> str:
    """Return why modules cannot be built and run here, or ""."""
    if shutil.which("node") is None:
        return "node not installed; on Debian: apt install nodejs"
    try:
        module.linker()
    except UsageError as error:
        return str(error)
    return ""


def said(folder: Path, name: str, script: str, seconds: int = 600) -> Any:
    """Run a script; return what it prints as JSON. `net` is the bundle's JavaScript."""
    path = json.dumps(str((folder / f"{name}.js").resolve()))
    text = _BEGIN.replace("{path}", path) + script
    command = ["node", "--input-type=module", "-e", text]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def checked(folder: Path, name: str, steps: int, spike: float | None = None) -> int:
    """Return the digest after `steps` steps on made-up samples."""
    options = json.dumps({"steps": steps, **({} if spike is None else {"spike": spike})})
    return int(said(folder, name, f"print(await net.check({options}));")["digest"], 16)
