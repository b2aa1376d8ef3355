"""The C functions of a bundle: prototypes for the header, LLVM text that calls the kernels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..formats import BLOCKED
from ..kernels.device import layout as device
from ..kernels.step_loop import layout as plans
from ..optim.schedules import SCHEDULES, Constant
from ..program import Program
from .image import gettable

# C type -> LLVM type; others are pointers.
_TYPES = {"int": "i32", "int64_t": "i64", "double": "double", "uint32_t": "i32"}


@dataclass(frozen=True)
class Function:
    """One C function `NAME_<name>` of a bundle.

    Attributes:
      kernel: kernel in kernels/device that does the work. It is called with `words`, followed by
        the address of the result if the function returns one.
      parameters: (C type, name) of each parameter after the first, which is always the net.
      words: operands of the kernel. A string is "memory", "rom", a parameter name, a number, or a
        symbol (@NAME) whose address is passed. A mapping {index: parameter} becomes the address of
        a struct of GIVEN_WORDS words, with these parameters and 0 elsewhere.
      first: (kernel, words) to call beforehand; if that call returns nonzero, the function returns
        its result at once.
      comment: comment for the header; %N stands for the prefix in capitals.
    """

    name: str
    kernel: str
    parameters: tuple[tuple[str, str], ...]
    words: tuple[str | Mapping[int, str], ...]
    comment: str
    returns: str = "int"
    first: tuple[str, tuple[str, ...]] | None = None


FUNCTIONS = (
    Function(
        "data", "drive_data",
        (("NAME_fill *", "fill"), ("void *", "user"), ("int64_t", "train"), ("int64_t", "held")),
        ("memory", "fill", "user", "train", "held"),
        "Set the source of samples: `train` training samples (split 1), `held` for eval (split 0). "
        "A minibatch that poll has begun must be finished first. With 32-bit addresses, counts "
        "above 2147483647 are %N_REFUSED.",
    ),
    Function(
        "input", "drive_input",
        (("int", "input"), ("int", "type"), ("const float *", "factor"), ("const float *", "shift"),
         ("int", "channels"), ("int", "inner")),
        ("memory", "input", "type", "factor", "shift", "channels", "inner"),
        "Raw values of an input have `type`; element e becomes value * factor[c] + shift[c] with "
        "c = e / inner % channels. NULL: unchanged; also for integers. The arrays must remain "
        "valid.",
    ),
    Function(
        "settings", "drive_schedule",
        (("double", "lr"), ("int", "schedule"), ("int64_t", "total_steps"),
         ("int64_t", "warmup_steps"), ("int64_t", "step_size"), ("double", "gamma")),
        ("memory", "rom", {
            device.GIVEN_LR: "lr", device.GIVEN_KIND: "schedule",
            device.GIVEN_TOTAL: "total_steps", device.GIVEN_WARMUP: "warmup_steps",
            device.GIVEN_SIZE: "step_size", device.GIVEN_NUMBERS: "gamma",
        }),
        "Set learning rate, schedule and steps of the whole run (needed by %N_COSINE; step_size "
        "and gamma are for %N_STEP, gamma also for %N_EXPONENTIAL).",
    ),
    Function(
        "schedule", "drive_schedule", (("const NAME_rates *", "rates"),),
        ("memory", "rom", "rates"),
        "The same for schedules with more numbers.",
    ),
    Function(
        "step", "drive_step", (), ("memory", "rom", "1"),
        "Train one minibatch. Returns %N_DONE; if the fill callback returned another value, the "
        "minibatch was discarded and that value is returned.",
    ),
    Function(
        "poll", "drive_step", (), ("memory", "rom", "0"),
        "Run the next piece of a minibatch. Returns %N_MORE, then %N_DONE.",
    ),
    Function(
        "split", "drive_split", (("int", "parts"),), ("memory", "parts"),
        "Make the pieces of poll up to `parts` times shorter; results stay bit-identical.",
    ),
    Function(
        "eval", "drive_measure", (("double *", "loss"), ("double *", "accuracy")),
        ("memory", "rom", "loss", "accuracy"),
        "Mean loss and accuracy over the evaluation samples; if samples are evaluated together, "
        "over whole microbatches (%N_REFUSED if there are none).",
    ),
    Function(
        "predict", "drive_predict",
        (("const void *", "x"), ("int64_t", "samples"), ("float *", "out")),
        ("memory", "rom", "x", "samples", "out"),
        "Compute out[samples][%N_OUTPUT] from raw samples (several inputs: x is an array of "
        "pointers); if samples are evaluated together, only whole microbatches (or %N_REFUSED). "
        "With 32-bit addresses, at most 2147483647 samples.",
    ),
    Function(
        "save", "drive_save", (("const NAME_store *", "store"),), ("memory", "rom", "store"),
        "Write the state to the older of the two slots.",
    ),
    Function(
        "load", "drive_load", (("const NAME_store *", "store"),), ("memory", "rom", "store"),
        "Load the newest good state; %N_NOTHING if there is none.",
    ),
    Function(
        "get", "drive_get", (("int", "value"), ("float *", "to")),
        ("memory", "rom", "value", "to"), "Copy a value of the table below.",
    ),
    Function(
        "set", "drive_set", (("int", "value"), ("const float *", "from")),
        ("memory", "rom", "value", "from"),
        "Replace a value of the table below. A saved state contains no loss weights: set them "
        "again after loading it.",
    ),
    Function(
        "digest", "drive_sum", (), ("memory", "rom"),
        "CRC-32 of the state: equal bits have equal digests.", "uint32_t",
    ),
    Function(
        "progress", "drive_progress", (("NAME_report *", "report"),), ("memory", "report"),
        "Results of the last minibatch.", "void",
    ),
)  # fmt: skip
THREADS = Function(
    "threads",
    "drive_threads",
    (("NAME_run *", "run"), ("void *", "user"), ("NAME_yield *", "yield_")),
    ("memory", "run", "user", "yield_"),
    "All but the smallest tapes are passed to `run`, which calls work(tape, thread, nthreads) on "
    "every thread and waits for all; threads wait for each other with `yield_`.",
    "void",
)
LOSSES = Function(
    "losses",
    "drive_losses",
    (("double *", "loss"), ("double *", "accuracy")),
    ("memory", "loss", "accuracy", "%d"),
    "After eval: each of the losses, without its weight, and the share of its targets that were "
    "predicted: %N_LOSSES numbers each. %N_REFUSED after a step or predict.",
)
PASS = Function(
    "pass",
    "drive_pass",
    (),
    ("memory", "rom"),
    "Skip the next minibatch, which was %N_BROKEN before.",
)
# For Programs with several lengths; %n: number of lengths.
_COUNTS = (("const int64_t *", "train"), ("const int64_t *", "held"))
_OF_LENGTHS = {
    "data": Function(
        "data",
        "drive_length_data",
        (("NAME_fill *", "fill"), ("void *", "user"), *_COUNTS),
        ("memory", "%n", "@.filled", "fill", "user", "train", "held"),
        "Set the source of samples: for each of the %N_LENGTHS lengths, the number of training "
        "samples (split 1) and of samples for eval (split 0). NULL: none. Samples of a split are "
        "numbered from the shortest length to the longest. `fill` gets such a number and buffers "
        "of zeros (targets: of the ignored value), into which it writes the sample's values.",
    ),
    "eval": Function(
        "eval",
        "drive_length_measure",
        (("double *", "loss"), ("double *", "accuracy")),
        ("memory", "@lengths", "%n", "%d", "loss", "accuracy"),
        "Mean loss and accuracy over the evaluation samples of all lengths; if samples are "
        "evaluated together, over whole microbatches (%N_REFUSED if there are none).",
    ),
}
LENGTH = Function(
    "length",
    "drive_length",
    (("int64_t", "length"),),
    ("memory", "@lengths", "%n", "length"),
    "Use the smallest length that holds so many positions, for predict: its samples and outputs "
    "are as long (%N_REFUSED: it is longer than all).",
)
_FILLED = "drive_length_fill"
_NEXT = "drive_length_next", ("memory", "@lengths", "%n")
_MINIBATCH = ("step", "poll", "pass")
_ORDERED = " Its samples have one length; they come in the order in which Python trains on them."
# For Programs that update weights before all gradients are known.
_FUSED = {"step": "drive_step_fused", "poll": "drive_step_fused"}
_BROKEN = " %N_BROKEN if gradients were not finite: load a state, then skip this minibatch."
# Variants that also read values in blocks: half a kilobyte more code.
_PACKED = {"drive_get": "drive_get_packed", "drive_set": "drive_set_packed"}
# Kernels of schedules, by number; those not available in bundles are never called.
RATES = tuple(
    kind.bundled if kind.in_bundles() else Constant.bundled for kind in SCHEDULES.values()
)


def functions(program: Program, lengths: int = 0) -> tuple[Function, ...]:
    """The C functions of a Program's bundle.

    Args:
      lengths: number of lengths; 0 for a bundle of one length.
    """
    result, several = list(FUNCTIONS), len(program.recipe.get("losses", ()))
    if program.threads > 1:
        result.append(THREADS)
    if several:
        result.append(LOSSES)
    if program.unpredicted:
        result = [f for f in result if f.name != "predict"]
    if any(slot.dtype in BLOCKED for slot in gettable(program)):
        result = [replace(f, kernel=_PACKED.get(f.kernel, f.kernel)) for f in result]
    if program.recipe.get("fused_update"):
        result = [
            replace(f, kernel=_FUSED[f.name], comment=f.comment + _BROKEN)
            if f.name in _FUSED
            else f
            for f in result
        ]
        result.append(PASS)
    if lengths:
        result = [_OF_LENGTHS.get(f.name, f) for f in result]
        result = [replace(f, first=_NEXT) if f.name in _MINIBATCH else f for f in result]
        result = [
            replace(f, comment=f.comment + _ORDERED) if f.name == "step" else f for f in result
        ]
        result.append(LENGTH)
    numbers = {"%d": str(several), "%n": str(lengths)}
    return tuple(_counted(f, numbers) for f in result)


def _counted(function: Function, numbers: Mapping[str, str]) -> Function:
    """Fill in %d (number of losses; 0 if there is one loss) and %n (number of lengths)."""
    words = tuple(
        numbers.get(word, word) if isinstance(word, str) else word for word in function.words
    )
    first = function.first
    if first is not None:
        first = first[0], tuple(numbers.get(word, word) for word in first[1])
    return replace(function, words=words, first=first)


def _has_lengths(found: Sequence[Function]) -> bool:
    return any(f.name == LENGTH.name for f in found)


def kernels(found: Sequence[Function]) -> list[str]:
    """Names of the kernels to link."""
    used = dict.fromkeys(f.kernel for f in found)
    used |= dict.fromkeys(f.first[0] for f in found if f.first is not None)
    used |= dict.fromkeys([_FILLED] if _has_lengths(found) else [])
    return ["run_tape", "drive_open", "drive_train", "drive_evaluate", *RATES, *used]


def exports(prefix: str, found: Sequence[Function], hosted: bool = True) -> list[str]:
    """Symbols that a bundle's code defines."""
    first = "open" if hosted else "init"
    names = [first, *(f.name for f in found), *(["work"] if THREADS in found else [])]
    return [f"{prefix}_{name}" for name in names]


def mapped_symbol(prefix: str) -> str:
    """Symbol of the constant that contains the frozen weights; no header declares it."""
    return f"{prefix}_mapped"


def llvm_text(
    prefix: str,
    found: Sequence[Function],
    pointer_bits: int,
    align: int,
    nbytes: int,
    hosted: bool = True,
) -> str:
    """LLVM text of the functions; `rom` must be a constant in the same module.

    Args:
      nbytes: size of the memory, which is aligned to `align`.
      hosted: export only `open`; if False, export `init`, which reads the constant `weights`.
    """
    lines = [f"declare void @et_{k}__plain(i64, i64, i64, i64)" for k in kernels(found)]
    lines += [_open(prefix, hosted, pointer_bits, align, nbytes)]
    lines += [] if hosted else [init_text(prefix, pointer_bits, "internal")]
    several = _has_lengths(found)
    lines += [_wrapper(prefix, function, several, pointer_bits == 32) for function in found]
    lines += [_FILLED_TEXT] if several else []
    if THREADS in found:
        lines.append(
            f"define void @{prefix}_work(ptr %tape, i32 %thread, i32 %nthreads) {{\n"
            "  %a = ptrtoint ptr %tape to i64\n  %b = sext i32 %thread to i64\n"
            "  %c = sext i32 %nthreads to i64\n"
            "  call void @et_run_tape__plain(i64 0, i64 %a, i64 %b, i64 %c)\n  ret void\n}"
        )
    return "\n".join(lines) + "\n"


def init_text(prefix: str, pointer_bits: int, linkage: str) -> str:
    """LLVM text of `init`, which calls `open` to read the constant `weights`.

    Args:
      linkage: linkage of `open`, which is in this module or another one.
    """
    size = f"i{pointer_bits}"
    declared = (
        f"declare ptr @{prefix}_open(ptr, {size}, ptr, ptr)\n" if linkage != "internal" else ""
    )
    return f"""{declared}define ptr @{prefix}_init(ptr %memory, {size} %bytes) {{
  %net = call ptr @{prefix}_open(ptr %memory, {size} %bytes, ptr null, ptr @weights)
  ret ptr %net
}}"""


def _open(prefix: str, hosted: bool, pointer_bits: int, align: int, nbytes: int) -> str:
    size = f"i{pointer_bits}"
    widen = "%w = zext i32 %bytes to i64" if pointer_bits == 32 else "%w = add i64 %bytes, 0"
    linkage, given = (
        "" if hosted else "internal ",
        f"ptr %memory, {size} %bytes, ptr %read, ptr %user",
    )
    return f"""define {linkage}ptr @{prefix}_open({given}) {{
  %a = ptrtoint ptr %memory to i64
  {widen}
  %up = add i64 %a, {align - 1}
  %first = and i64 %up, -{align}
  %end = add i64 %a, %w
  %need = add i64 %first, {nbytes}
  %short = icmp ugt i64 %need, %end
  br i1 %short, label %refuse, label %open
refuse:
  ret ptr null
open:
  %out = alloca i64, align 8
  %args = alloca [5 x i64], align 8
  %rom = ptrtoint ptr @rom to i64
  %by = ptrtoint ptr %read to i64
  %source = ptrtoint ptr %user to i64
  %status = ptrtoint ptr %out to i64
  store i64 %first, ptr %args
  %second = getelementptr i64, ptr %args, i32 1
  store i64 %rom, ptr %second
  %third = getelementptr i64, ptr %args, i32 2
  store i64 %by, ptr %third
  %fourth = getelementptr i64, ptr %args, i32 3
  store i64 %source, ptr %fourth
  %fifth = getelementptr i64, ptr %args, i32 4
  store i64 %status, ptr %fifth
  %list = ptrtoint ptr %args to i64
  call void @et_drive_open__plain(i64 0, i64 %list, i64 0, i64 1)
  %found = load i64, ptr %out
  %bad = icmp ne i64 %found, 0
  %net = inttoptr i64 %first to ptr
  %given = select i1 %bad, ptr null, ptr %net
  ret ptr %given
}}"""


# Fills a sample of a Program with several lengths: the net is the step loop's `user`.
_FILLED_TEXT = f"""define internal i32 @.filled(ptr %net, i32 %split, i64 %sample,
    ptr %x, ptr %y) {{
  %.out = alloca i64, align 8
  %args = alloca [6 x i64], align 8
  %w0 = ptrtoint ptr %net to i64
  store i64 %w0, ptr %args
  %w1 = sext i32 %split to i64
  %p1 = getelementptr i64, ptr %args, i32 1
  store i64 %w1, ptr %p1
  %p2 = getelementptr i64, ptr %args, i32 2
  store i64 %sample, ptr %p2
  %w3 = ptrtoint ptr %x to i64
  %p3 = getelementptr i64, ptr %args, i32 3
  store i64 %w3, ptr %p3
  %w4 = ptrtoint ptr %y to i64
  %p4 = getelementptr i64, ptr %args, i32 4
  store i64 %w4, ptr %p4
  %w5 = ptrtoint ptr %.out to i64
  %p5 = getelementptr i64, ptr %args, i32 5
  store i64 %w5, ptr %p5
  %list = ptrtoint ptr %args to i64
  call void @et_{_FILLED}__plain(i64 0, i64 %list, i64 0, i64 1)
  %found = load i64, ptr %.out
  %short = trunc i64 %found to i32
  ret i32 %short
}}"""


def _wrapper(prefix: str, function: Function, several: bool, short: bool) -> str:
    """LLVM text of one function.

    Args:
      several: use the ROM of the current length.
      short: operands of kernels have 32 bits; a kernel refuses -1 in place of a larger count.
    """
    given = {"memory": "ptr"} | {n: _TYPES.get(c, "ptr") for c, n in function.parameters}
    kind = _TYPES.get(function.returns, "void")
    head = ", ".join(f"{llvm} %{name}" for name, llvm in given.items())
    lines = [f"define {kind} @{prefix}_{function.name}({head}) {{", "  %.out = alloca i64, align 8"]
    if function.first is not None:
        kernel, words = function.first
        lines += _call("f", kernel, [*words, ".out"], given, False)
        lines += [
            "  %refused = load i64, ptr %.out",
            "  %ended = icmp ne i64 %refused, 0",
            "  br i1 %ended, label %end, label %go",
            "end:",
            f"  %early = trunc i64 %refused to {kind}",
            f"  ret {kind} %early",
            "go:",
        ]
    wide = [name for name, llvm in given.items() if llvm == "i64" and name in function.words]
    for name in wide if short else ():
        lines += [
            f"  %{name}.far = icmp ugt i64 %{name}, {2**31 - 1}",
            f"  %{name}.fits = select i1 %{name}.far, i64 -1, i64 %{name}",
        ]
        given[f"{name}.fits"] = "i64"
    own = [f"{word}.fits" if short and word in wide else word for word in function.words]
    own += [".out"] if kind != "void" else []
    lines += _call("", function.kernel, own, given, several)
    if kind == "void":
        return "\n".join([*lines, "  ret void\n}"])
    return "\n".join(
        [
            *lines,
            "  %found = load i64, ptr %.out",
            f"  %short = trunc i64 %found to {kind}",
            f"  ret {kind} %short\n}}",
        ]
    )


def _call(
    mark: str,
    kernel: str,
    words: Sequence[str | Mapping[int, str]],
    given: Mapping[str, str],
    several: bool,
) -> list[str]:
    """LLVM text that calls a kernel; names of its values start with `mark`."""
    lines = [f"  %{mark}args = alloca [{len(words)} x i64], align 8"]
    for k, word in enumerate(words):
        if word == "rom" and several:
            lines.append(_used_rom(k))
        elif isinstance(word, str):
            lines.append(_word(f"{mark}w{k}", word, given.get(word, "")))
        else:
            lines.append(_struct(k, word, given))
        lines.append(f"  %{mark}p{k} = getelementptr i64, ptr %{mark}args, i32 {k}")
        lines.append(f"  store i64 %{mark}w{k}, ptr %{mark}p{k}")
    return [
        *lines,
        f"  %{mark}list = ptrtoint ptr %{mark}args to i64",
        f"  call void @et_{kernel}__plain(i64 0, i64 %{mark}list, i64 0, i64 1)",
    ]


def _used_rom(k: int) -> str:
    """LLVM text that loads the ROM of the current length."""
    pointer = f"  %block.at = getelementptr i64, ptr %plan, i32 {plans.LENGTHS}"
    return "\n".join(
        [
            "  %plan.word = load i64, ptr %memory",  # device.PLAN is the first word
            "  %plan = inttoptr i64 %plan.word to ptr",
            pointer,
            "  %block.word = load i64, ptr %block.at",
            "  %block = inttoptr i64 %block.word to ptr",
            f"  %w{k} = load i64, ptr %block",  # device.USED_ROM is the first word
        ]
    )


def _struct(k: int, places: Mapping[int, str], given: Mapping[str, str]) -> str:
    """LLVM text that builds a struct of parameters on the stack and passes its address as an
    operand."""
    kind = f"[{device.GIVEN_WORDS} x i64]"
    lines = [f"  %s{k} = alloca {kind}, align 8", f"  store {kind} zeroinitializer, ptr %s{k}"]
    for word, name in places.items():
        value = f"{given[name]} %{name}"
        if given[name] == "i32":
            lines.append(f"  %e{word} = sext {value} to i64")
            value = f"i64 %e{word}"
        lines.append(f"  %a{word} = getelementptr i64, ptr %s{k}, i32 {word}")
        lines.append(f"  store {value}, ptr %a{word}")
    return "\n".join([*lines, f"  %w{k} = ptrtoint ptr %s{k} to i64"])


def _word(to: str, word: str, kind: str) -> str:
    """LLVM text that converts one operand to `to`, a 64-bit word."""
    if word.startswith("@"):
        return f"  %{to} = ptrtoint ptr {word} to i64"
    if word in ("rom", ".out"):
        name = "@rom" if word == "rom" else "%.out"
        return f"  %{to} = ptrtoint ptr {name} to i64"
    if kind == "ptr":
        return f"  %{to} = ptrtoint ptr %{word} to i64"
    if kind == "double":
        # by address: emission may keep operand words in 32 bits, as they are counts
        return (
            f"  %{to}.d = alloca double, align 8\n  store double %{word}, ptr %{to}.d\n"
            f"  %{to} = ptrtoint ptr %{to}.d to i64"
        )
    if kind == "i32":
        return f"  %{to} = sext i32 %{word} to i64"
    return f"  %{to} = add i64 {f'%{word}' if kind else word}, 0"
