"""`bundle`."""

import re
from pathlib import Path

from ...api import bundle as write_bundle
from ...data.registry import open_data
from ...runtime.loading.program import load_program
from ...screen.tables import to_json
from ..parser.namespace import Namespace


def bundle(arguments: Namespace) -> int:
    """Write the C library of a Program and print the RAM and flash it needs."""
    program = load_program(arguments.model)
    name = arguments.name or _name_of(arguments.model)
    data = open_data(arguments.data) if arguments.data else None
    made = write_bundle(
        program,
        arguments.out,
        name=name,
        target=arguments.target,
        size=arguments.size,
        cc=arguments.cc,
        data=data,
    )
    if arguments.json:
        print(to_json({"path": str(arguments.out), **made}))
        return 0
    ram, flash = made["ram_nbytes"], made["flash_nbytes"]
    frozen = f"frozen weights {flash['frozen']:,}, " if flash["frozen"] else ""
    if left_out := made["tapes"]["left_out"]:
        print(f"tapes  of {made['tapes']['set']} (the default); left out: {'; '.join(left_out)}")
    print(
        f"{made['target']['name']}, for {made['optimised_for']}\n"
        f"RAM    {ram['memory']:,} bytes: arena {ram['arena']:,}, plan {ram['plan']:,}; and a "
        "stack\n"
        f"flash  {flash['all']:,} bytes: initial values {flash['initial_values']:,}, {frozen}tapes "
        f"{flash['tapes']:,}, code and tables {flash['code_and_tables']:,}\n"
        f"state  {made['stored_state_nbytes']:,} bytes in each of two slots\n"
        f"wrote {Path(arguments.out) / f'lib{name}.a'} and {name}.h, main.c, Makefile, "
        "MANIFEST.json"
    )
    return 0


def _name_of(path: str) -> str:
    """A prefix for C functions, made from a file name."""
    plain = re.sub(r"[^a-z0-9]+", "_", Path(path).stem.lower()).strip("_")[:31]
    return plain if plain[:1].isalpha() else f"net_{plain}"[:31].rstrip("_")
