"""AIfES beside a bundle on an emulated Cortex-M7: RAM, flash, instructions, accuracy of the digits.

    git clone https://github.com/Fraunhofer-IMS/AIfES_for_Arduino
    python -m benchmarks.aifes AIfES_for_Arduino

AIfES is under the AGPL: nothing of it is here. It trains in fp32 alone; its rows are for the same
minibatch and for one of 8. Printed are rows for docs/targets.md.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import edgetrain as et
from device_tests.boards import BOARD, MACHINES, TICK, board_files, made, ran, said, sections
from edgetrain.errors import BudgetError
from edgetrain.kernels import targets
from edgetrain.runtime.samples.file import write_samples

HERE, SAMPLES = Path(__file__).parent, 220 * 32
RATE, THEIR_RATE = 0.03, 0.1  # of a minibatch of 32
MODEL = BOARD.parent / "digits" / "model.onnx"
OPTIMIZER = et.SGD(lr=RATE, momentum=0.9, nesterov=True, weight_decay=5e-4)
TARGET = targets.get("cortex-m7")
BUILDS = [
    ("cortex-m7", "fp32", True), ("cortex-m7", "fp32", False), ("cortex-m7", "fp16", True),
    ("cortex-m7", "fp16", False), ("cortex-m4", "fp16", True), ("cortex-m4", "fp16", False),
    ("cortex-m33", "fp16", True),
]  # fmt: skip
FLAGS = (
    "-O2", "-std=c99", "-w", "-ffunction-sections", "-fdata-sections", "-specs=nano.specs",
    "-nostartfiles", "-Wl,--gc-sections", "-T", "board.ld",
)  # fmt: skip


def program(precision: str, target: str = TARGET.name) -> et.Program:
    """Compile the digits for the least memory."""
    options = {"optimizer": OPTIMIZER, "minibatch": 32, "precision": precision, "target": target}
    model = et.load_onnx(MODEL)
    try:
        return et.compile(model, budget=1000, verbose=False, **options)
    except BudgetError as least:
        return et.compile(model, budget=least.min_budget_nbytes, verbose=False, **options)


def of_bundle(target: str, precision: str, size: bool) -> list[str]:
    """Return a row: RAM bytes with the stack, flash bytes without data, instructions, accuracy."""
    processor = targets.get(target)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        et.bundle(program(precision, target), folder, name="digits", target=target, size=size,
               data=et.open_data("digits"))  # fmt: skip
        board_files(folder, processor, "digits")
        made(folder, processor, ["CHECK", "STEPS=3"])
        flash = sections(folder / "digits")[".text"]
        trained = said(ran(folder, processor, "digits"), "ticks") * TICK / (3 * 32)
        made(folder, processor, ['SAMPLES=\\"digits.samples\\"', f"STEPS={SAMPLES // 32}"])
        text = ran(folder, processor, "digits")
    ram = said(text, "ram") + said(text, "stack")
    mode = "--size" if size else "--speed"
    hits = said(text, "accuracy*10000")
    return _row(f"edgetrain {precision}, {mode}, {target}", 32, ram, flash, trained, hits)


def of_aifes(source: Path, minibatch: int) -> list[str]:
    """Like `of_bundle`, for AIfES; a first run asks it for the sizes of its two memory blocks."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_samples(program("fp32"), et.open_data("digits"), folder / "digits.samples")
        found = _ran(folder, source, minibatch, 8, 8, 1)
        parameters, working = said(found, "parameters"), said(found, "working")
        found = _ran(folder, source, minibatch, parameters, working, SAMPLES // minibatch)
        size = sections(folder / "aifes")
        data = (folder / "digits.samples").stat().st_size
    flash = size[".text"] + size.get(".data", 0) - data
    ram = said(found, "ram") + size.get(".data", 0) + said(found, "stack")
    trained = said(found, "trained") * TICK / SAMPLES
    return _row(
        "AIfES fp32, -O2, cortex-m7", minibatch, ram, flash, trained, said(found, "accuracy*10000")
    )


def _ran(folder: Path, source: Path, minibatch: int, parameters: int, working: int, steps: int):
    """Compile AIfES with aifes.c and run it; return its output."""
    board_files(folder, TARGET, "digits")
    (folder / "board.h").write_text(
        "#include <stdint.h>\n#include <stddef.h>\n"
        f"#define COUNTER {MACHINES[TARGET.name].counter:#x}\n"
        '#define NET_SAMPLES "digits_samples"\n#define SAMPLES "digits.samples"\n'
        f"#define BATCH {minibatch}\n#define STEPS {steps}\n"
        f"#define RATE {THEIR_RATE * minibatch / 32}f\n"
        f"#define PARAMETERS {parameters}\n#define WORKING {working}\n"
    )
    script = (folder / "board.ld").read_text()
    # AIfES has variables with initial values
    script = script.replace("*(.data*)", "").replace(
        "  .bss", "  .data : { *(.data*) } > RAM\n  .bss"
    )
    (folder / "board.ld").write_text(script)
    files = [
        str(path)
        for path in sorted((source / "src").rglob("*.c"))
        if not {"cmsis", "avr_pgm", "express"} & set(path.parts)
    ]
    given = ["arm-none-eabi-gcc", *TARGET.options, *FLAGS, f"-I{source / 'src'}", "-I."]
    given += [str(HERE / "aifes.c"), "board.c", *files, "-o", "aifes", "-lm", "-lc", "-lnosys"]
    subprocess.run(given, cwd=folder, check=True)
    return ran(folder, TARGET, "aifes", seconds=3000)


def _row(name: str, minibatch: int, ram: int, flash: int, trained: float, hits: int) -> list[str]:
    row = [name, str(minibatch), f"{ram:,}", f"{flash:,}", f"{trained / 1e6:.2f} M",
           f"{hits / 100:.2f} %"]  # fmt: skip
    print("| " + " | ".join(row) + " |", flush=True)
    return row


def main() -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path, help="folder of AIfES_for_Arduino")
    source = parser.parse_args().source
    if not (source / "src" / "aifes.h").is_file():
        sys.exit(f"{source}: no src/aifes.h there. Clone AIfES_for_Arduino.")
    print(
        "| engine | minibatch | RAM with stack | flash | instructions a sample | accuracy |",
        flush=True,
    )
    print("|---|---:|---:|---:|---:|---:|", flush=True)
    for target, precision, size in BUILDS:
        of_bundle(target, precision, size)
    for minibatch in (32, 8):
        of_aifes(source, minibatch)


if __name__ == "__main__":
    main()
