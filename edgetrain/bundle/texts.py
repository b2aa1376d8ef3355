"""The human-readable files of a bundle: header, main.c and Makefile."""

import re
import textwrap
from string import Template

from .. import __version__
from ..kernels.device import layout as device
from ..kernels.targets import Target as Processor
from ..optim import SCHEDULES, Schedule
from ..program import Program, Slot
from ..program.samples import elements, limit_of, record_nbytes
from ..units.plugin import about
from .functions import Function, functions
from .image import Image, initial_values, mapped_nbytes
from .lengths import lengths_of
from .losses import Target, losses_of, targets_of
from .names import TEMPLATES, value_names
from .rom import WEIGHTS_MAGIC

_WIDTH = 100
# Fields of the schedule struct, in the order of a schedule's own options.
_WHOLE, _REAL = ("size", "patience", "cooldown"), ("gamma", "threshold", "min_lr")
_C_TYPES = {"f32": "float", "i32": "int32_t"}


def memory_nbytes(image: Image) -> int:
    """Bytes that a caller must provide, including padding: their memory may only be 8-byte
    aligned."""
    return image.nbytes + image.align - 8


_OPEN = """
/* The same, but reads the initial weights from $net.weights with read(user, to, offset, bytes),
   which returns 0 for success. A program that does not call ${net}_init does not contain them. */
typedef int ${net}_read(void *user, void *to, uint32_t offset, uint32_t bytes);
${net} *${net}_open(void *memory, size_t bytes, ${net}_read *read, void *user);"""


_BROKEN = "       {}_BROKEN = -7,    /* a failed step changed weights: load a state */\n"


def _goes_back(program: Program) -> bool:
    """Whether a failed step can't be undone."""
    return bool(program.recipe.get("fused_update"))


def header(name: str, image: Image, processor: Processor) -> str:
    """Contents of NAME.h."""
    program = image.program
    inputs = program.inputs["micro"]
    of_targets = {target.place: target for target in targets_of(program)}
    sizes = "".join(
        f"#define {name.upper()}_X{k or ''} {elements(program, slot)} "
        f"/* {_C_TYPES[slot.format.raw.name]} values of a sample's "
        f"{_what(slot, of_targets.get(k))}{_layout(slot)} */\n"
        for k, slot in enumerate(inputs)
    )
    sizes += _targets(name, program)
    target = program.targets["micro"]
    prototypes = "".join(_prototype(name, f) for f in functions(program, len(image.sets)))
    if program.threads > 1:
        prototypes += f"void {name}_work(void *tape, int thread, int nthreads);\n"
    return _filled(
        "net.h",
        name,
        title=f"{name}: trains {_comment(program.model_name)}",
        version=__version__,
        memory=memory_nbytes(image),
        arena=image.arena_nbytes,
        frozen=_frozen(name, image),
        stored=image.stored_nbytes + 64,
        minibatch=program.minibatch,
        threads=program.threads,
        lr=program.lr,
        inputs=len(inputs),
        input_sizes=sizes,
        lengths=_lengths(name, image),
        output=_output(name, program),
        target=elements(program, target),
        target_layout=_layout(target),
        target_type=_C_TYPES[target.format.raw.name],
        broken=_BROKEN.format(name.upper()) if _goes_back(program) else "",
        thread_types=_thread_types(name) if program.threads > 1 else "",
        open=Template(_OPEN).substitute(net=name) if processor.hosted else "",
        functions=prototypes,
        values=_values(name, image),
        schedules=_schedules(name),
        schedule_words=_schedule_words(),
    )


def _schedules(name: str) -> str:
    """The enum of schedules."""
    names = ", ".join(f"{name.upper()}_{kind.upper()}" for kind in SCHEDULES)
    return textwrap.fill(f"enum {{ {names} }};", _WIDTH, subsequent_indent="       ")


def _schedule_words() -> str:
    """Comments that say which struct fields newer schedules use for their numbers."""
    lines = []
    for kind in [*SCHEDULES.values()][device.FIRST_SCHEDULES :]:
        if not kind.in_bundles():
            continue
        text = _comment(f"{kind.name.upper()}: {fields_of(kind)}", 400)
        filled = textwrap.fill(text, _WIDTH, initial_indent="   ", subsequent_indent="     ")
        lines.append(f"\n{filled}")
    return "".join(lines)


def fields_of(kind: type[Schedule]) -> str:
    """The struct fields that one of the newer schedules uses, with their meanings."""
    result = [*zip(_WHOLE, kind.own_of(int), strict=False)]
    result += zip(_REAL, kind.own_of(float), strict=False)
    return ", ".join(f"{word}: {about(field).help.replace(';', ',')}" for word, field in result)


def _what(slot: Slot, target: Target | None) -> str:
    return f"input {_comment(slot.name)}" if target is None else f"target {_named(target)}"


def _named(target: Target) -> str:
    return _comment(str(target.output))


def _targets(name: str, program: Program) -> str:
    """Where the targets of several losses are, by index, and the losses."""
    if "losses" not in program.recipe:
        return ""
    result = targets_of(program)
    lines = [f"#define {name.upper()}_TARGETS {len(result)} /* of several losses, by index: */"]
    for k, target in enumerate(result):
        where = "at y" if target.place is None else f"at x[{target.place}]"
        lines.append(
            f"#define {name.upper()}_TARGET{k} {elements(program, target.slot)} "
            f"/* {_C_TYPES[target.slot.format.raw.name]} values of output "
            f"{_named(target)}, {where} */"
        )
    losses = losses_of(program)
    lines.append(f"#define {name.upper()}_LOSSES {len(losses)} /* weights of losses, by index: */")
    lines += [
        f"/*   {k}: {_comment(str(item['output']))}, {item['name']}, {item['weight']:g} */"
        for k, item in enumerate(losses)
    ]
    return "\n".join(lines) + "\n"


def _layout(slot: Slot) -> str:
    """Note on the layout of a sample whose batch axis in the model's file is not the first."""
    if not slot.batch:
        return ""
    whole = ", ".join(map(str, slot.declared("n")))
    return f": the model's [{whole}] without axis {slot.batch}, which counts samples"


def _lengths(name: str, image: Image) -> str:
    """The number of lengths, and the sizes at each."""
    if not image.sets:
        return ""
    known = lengths_of(image.program, image.programs)
    rows = [
        [item["length"], item["minibatch"], *item["values"].values(), item["output"]]
        for item in known["sets"]
    ]
    columns = [f"x[{k}]" for k in range(len(image.program.inputs["micro"]))]
    said = f"For each: length, samples per update, then values of a sample: {', '.join(columns)}"
    what = f"lengths of {_comment(known['dimension'])}; the sizes above are those of the longest"
    table = ", ".join(f"{{{', '.join(map(str, row))}}}" for row in rows)
    return (
        f"#define {name.upper()}_LENGTHS {len(rows)} /* {what} */\n"
        f"{_wrapped(f'{said}, target, output.')}\n"
        f"#define {name.upper()}_SIZES {{ {table} }}\n"
    )


def _frozen(name: str, image: Image) -> str:
    if not image.program.mapped:
        return ""
    what = f"bytes of frozen weights: constants in lib{name}.a, not in RAM"
    return f"#define {name.upper()}_FROZEN {mapped_nbytes(image)} /* {what} */\n"


def _output(name: str, program: Program) -> str:
    if program.unpredicted:
        return _wrapped(f"There is no {name}_{_comment(program.unpredicted, 300)}")
    count = elements(program, program.outputs["eval"][0])
    what = "the best classes, the best first" if program.sliced else "the model's output"
    what += _layout(program.outputs["eval"][0])
    return f"#define {name.upper()}_OUTPUT {count} /* values of a sample's output: {what} */"


# (has an operating system, loss counts correct predictions) -> line that prints eval's results.
_JUDGED = {
    (True, True): 'printf("eval loss %.6f accuracy %.4f\\n", loss, accuracy);',
    (True, False): 'printf("eval loss %.6f\\n", loss);',
    (False, True): 'print("accuracy*10000 ", scaled(accuracy, 10000), 10);',
    (False, False): 'print("eval-loss*1000 ", scaled(loss, 1000), 10);',
}


def main(name: str, image: Image, target: Processor, counted: bool) -> str:
    """main.c; it reads files if there is an operating system, else flash.

    Args:
      counted: whether the loss counts correct predictions.
    """
    program, several = image.program, bool(image.sets)
    kind = "samples_lengths" if several else "samples"
    files = {"sample_part": f"{kind}_file.c" if target.hosted else f"{kind}_flash.c"}
    files |= {"made_up_part": "made_up.c"}
    copies = _copies_by_length if several else _copies
    lines = {
        "copies": copies(program, target.hosted),
        "made_up": _made_up(program, several),
        "made_up_size": _MADE_UP_SIZE if several else "  (void)user, (void)split;\n",
        "made_up_more": _filled("made_up_lengths.c", name) if several else "",
        "record_most": record_nbytes(program),
        "record_least": record_nbytes(program, small=True),
    }
    parts = {part: _filled(file, name, **lines) for part, file in files.items()}
    parts["judged"] = _JUDGED[target.hosted, counted]
    columns = 3 + len(program.staged("micro"))
    parts["lengths_part"] = _filled("lengths.c", name, columns=columns) if several else ""
    parts["made_up_data"] = f"{name}_data(net, made_up, NULL, 4 * {name.upper()}_MINIBATCH, 0)"
    parts["held"] = "samples.held > 0 && "
    if several:  # eval reports whether there are samples
        parts |= {"made_up_data": "made_up_data(net)", "held": ""}
    parts |= _steps(name, target.hosted, _goes_back(program))
    if not target.hosted:
        return _filled("main_flash.c", name, **parts)
    threaded = program.threads > 1
    parts["thread_part"] = _filled("threads.c", name) if threaded else ""
    parts["initial"] = str(len(initial_values(program)[0]))
    parts["weights_magic"] = hex(WEIGHTS_MAGIC)
    failed = 'return fail("no threads")'
    parts["thread_start"] = f"  if (start_threads(net)) {failed};\n" if threaded else ""
    return _filled("main_posix.c", name, **parts)


_MADE_UP_SIZE = """  int64_t first;
  const uint32_t *size = sizes[length_of(split, sample, &first)];
  (void)user;
"""


def _steps(name: str, hosted: bool, goes_back: bool) -> dict[str, str]:
    """The parts of main that run a step and handle failed steps."""
    call = "step" if hosted else "poll"
    if not goes_back:
        parts = dict.fromkeys(("return_part", "first_state", "kept_state"), "")
        return parts | {"advance": f"{name}_{call}(net)"}
    store = "&store" if hosted else "board_store"
    there = "fd >= 0" if hosted else "board_store != NULL"
    failed = [f'return fail("{why}")' if hosted else "return 1" for why in _NO_STATE]
    each = "each" if hosted else "(STEPS / 10 + 1)"
    first = (
        f"  if (!({there})) {failed[0]};\n  {name}_progress(net, &report);\n"
        f"  if (report.step == 0 && {name}_save(net, {store})) {failed[1]};\n"
    )
    if not hosted:
        first = f"#ifndef CHECK\n{first}#endif\n"
    kept = (
        f"\n    if ({there} && status == {name.upper()}_DONE && report.step % {each} == 0 && "
        f"{name}_save(net, {store})) {failed[1]};"
    )
    parts = {"first_state": first, "kept_state": kept, "advance": f"advance(net, {store})"}
    part = _filled("returns.c", name, call=call, most=device.RETURNS)
    return parts | {"return_part": part}


_NO_STATE = ("a step that fails goes back to a state: name a file for it", "the state was not kept")


def makefile(name: str, program: Program, target: Processor, cc: str | None) -> str:
    """A Makefile that builds main.c."""
    flags = "".join(f" {option}" for option in target.options)
    if target.hosted:
        kept = f"\tcat {name}.weights >> $@\n"
        libraries = " -lpthread" if program.threads > 1 else ""
        extra = {"ldflags": "-static", "more": "", "libraries": libraries, "kept": kept}
        extra["needed"] = f" {name}.weights"
    else:
        flags += " -ffreestanding"
        extra = {"ldflags": "-nostdlib -T board.ld", "more": "board.c", "libraries": " -lgcc"}
        extra |= {"kept": "", "needed": ""}
    return _filled(
        "Makefile",
        name,
        cc=cc or target.compiler or "cc",
        flags=flags,
        optimise="-O2" if target.hosted else "-Os",
        **extra,
    )


def _filled(template: str, name: str, **values: object) -> str:
    text = (TEMPLATES / template).read_text()
    text = Template(text).substitute(net=name, NET=name.upper(), **values)
    return re.sub(r" +$", "", text, flags=re.M)


def _comment(text: str, most: int = 80) -> str:
    """A name from a file, made safe for a C comment."""
    return re.sub(r"[^\w .,:/\[\]-]", "_", text.replace("*/", "__"))[:most]


def _prototype(name: str, function: Function) -> str:
    named = [(c.replace("NAME", name), n) for c, n in function.parameters]
    given = [f"{name} *net", *(c + n if c.endswith("*") else f"{c} {n}" for c, n in named)]
    comment = function.comment.replace("%N", name.upper())
    head = f"{function.returns} {name}_{function.name}("
    line = f"{head}{', '.join(given)});"
    if len(line) > _WIDTH:
        cut = next(k for k in range(len(given), 0, -1) if len(head + ", ".join(given[:k])) < _WIDTH)
        line = f"{head}{', '.join(given[:cut])},\n    {', '.join(given[cut:])});"
    return f"{_wrapped(comment)}\n{line}\n"


def _wrapped(comment: str) -> str:
    lines, line = [], "/*"
    for word in [*comment.split(), "*/"]:
        if len(line) + 1 + len(word) > _WIDTH:
            lines.append(line)
            line = "  "
        line += f" {word}"
    return "\n".join([*lines, line])


def _thread_types(name: str) -> str:
    return f"\ntypedef void {name}_run(void *user, void *tape);\ntypedef void {name}_yield(void);\n"


def _values(name: str, image: Image) -> str:
    names = value_names(name, (slot.name for slot in image.values))
    rows = [
        f"#define {c} {k} /* {_comment(slot.name)}: {_shape(slot)} */"
        for k, (c, slot) in enumerate(zip(names, image.values, strict=True))
    ]
    return "\n".join([*rows, f"#define {name.upper()}_VALUES {len(rows)}"])


def _shape(slot: Slot) -> str:
    return "x".join(map(str, slot.shape)) or "1"


def _fields(program: Program) -> list[tuple[str, Slot, str]]:
    """(C expression for the address of the raw values, slot, name in the limits) of each field."""
    result = program.staged("micro").items()
    last = len(result) - 1
    places = ["x"] if last == 1 else [f"((void **)x)[{k}]" for k in range(last)]
    return [(w, slot, name) for w, (name, slot) in zip([*places, "y"], result, strict=True)]


def _copies(program: Program, hosted: bool) -> str:
    """C code that copies the fields of a record."""
    result, copy = _fields(program), "memcpy" if hosted else "copy"
    sizes = [slot.format.raw.nbytes(elements(program, slot)) for _, slot, _ in result]
    if len(result) == 2:
        return (
            f"  {copy}(x, record, samples.bytes - {sizes[1]});\n"
            f"  {copy}(y, record + samples.bytes - {sizes[1]}, {sizes[1]});\n"
        )
    lines, offset = [], 0
    for (where, _, _), nbytes in zip(result, sizes, strict=True):
        lines.append(f"  {copy}({where}, record + {offset}, {nbytes});\n")
        offset += nbytes
    return "".join(lines)


def _copies_by_length(program: Program, hosted: bool) -> str:
    """C code that copies the fields of a record whose sizes come from a table of lengths."""
    lines, copy = [], "memcpy" if hosted else "copy"
    result = _fields(program)
    for k, (where, slot, _) in enumerate(result):
        nbytes = f"{slot.format.raw.nbytes(1)} * sizes[at][{k + 2}]"
        lines.append(f"  {copy}({where}, from, {nbytes});\n")
        lines += [f"  from += {nbytes};\n"] if k < len(result) - 1 else []
    return "".join(lines)


def _made_up(program: Program, several: bool) -> str:
    lines = []
    for k, (where, slot, name) in enumerate(_fields(program)):
        count = f"size[{k + 2}]" if several else str(elements(program, slot))
        limit, bits = limit_of(program, name), f"mixed(mixed(key + {k}u) + e)"
        if not slot.format.floats:
            kind, value = "int32_t", f"(int32_t)({bits} % {max(limit, 2)}u)"
        else:
            kind, value = "float", f"(float)({bits} >> 8) / 16777216"
            if limit != -1:
                value = f"SPIKED({value} * 2 - 1)"
        lines.append(
            f"  for (uint32_t e = 0; e < {count}; e++)\n    (({kind} *){where})[e] = {value};\n"
        )
    return "".join(lines)
