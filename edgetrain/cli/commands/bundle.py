"""`bundle`."""

import re
from pathlib import Path
from typing import Any

from ...api import bundle as write_bundle
from ...data.registry import check_label, open_data
from ...runtime.loading.program import load_program
from ...screen.tables import to_json
from ..parser.namespace import Namespace


def bundle(arguments: Namespace) -> int:
    """Write the C library of a Program and print the RAM and flash it needs."""
    program = load_program(arguments.model)
    name = name_of(arguments.model) if arguments.name is None else arguments.name
    check_label(arguments.data, arguments.label)
    data = open_data(arguments.data, label=arguments.label) if arguments.data else None
    made = write_bundle(
        program,
        arguments.out,
        name=name,
        target=arguments.target,
        size=arguments.size,
        cc=arguments.cc,
        data=data,
        length=arguments.length,
    )
    if arguments.json:
        print(to_json({"path": str(arguments.out), **made}))
        return 0
    ram, flash = made["ram_nbytes"], made["flash_nbytes"]
    frozen = f"frozen weights {flash['frozen']:,}, " if flash["frozen"] else ""
    if left_out := made["tapes"]["left_out"]:
        print(f"tapes  of {made['tapes']['set']} (the default); left out: {'; '.join(left_out)}")
    if result := made.get("lengths"):
        known = ", ".join(str(item["length"]) for item in result["sets"])
        print(f"lengths {result['dimension']}={known}: weights and state once, one arena")
    print(
        f"{made['target']['name']}, for {made['optimised_for']}\n"
        f"RAM    {ram['memory']:,} bytes: arena {ram['arena']:,}, plan {ram['plan']:,}; and a "
        "stack\n"
        f"flash  {flash['all']:,} bytes: initial values {flash['initial_values']:,}, {frozen}tapes "
        f"{flash['tapes']:,}, code and tables {flash['code_and_tables']:,}\n"
        f"state  {made['stored_state_nbytes']:,} bytes in each of two slots\n"
        f"{_written(Path(arguments.out), name, made)}"
    )
    return 0


def _written(out: Path, name: str, made: dict[str, Any]) -> str:
    """The written files, and the download size of a page."""
    module = made.get("module_nbytes")
    if module is None:
        return f"wrote {out / f'lib{name}.a'} and {name}.h, main.c, Makefile, MANIFEST.json"
    return (
        f"module {module['gzipped']:,} bytes to download (gzipped), {module['files']:,} unpacked; "
        f"{module['memory']:,} of memory in all\n"
        f"wrote {out / f'{name}.wasm'} and {name}.js, {name}.d.ts, index.html, package.json, "
        "MANIFEST.json"
    )


def name_of(path: str) -> str:
    """A name for files and a prefix for C functions, made from a file name."""
    plain = re.sub(r"[^a-z0-9]+", "_", Path(path).stem.lower()).strip("_")[:31].rstrip("_")
    return plain if plain[:1].isalpha() else f"net_{plain}"[:31].rstrip("_")
