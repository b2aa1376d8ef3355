"""Steps of a tape as the planner sees them: which steps each must follow."""

from edgetrain.compiler.tapes.steps import TapeProblem, tape_problem
from edgetrain.ir import Builder
from edgetrain.kernels.cache import jit

SIZE = 64
WHOLE = ((0, 0, 0, (SIZE,), (1,), (1,)),)


def _copy(builder: Builder, source: str, out: str, acc: int = 0) -> None:
    builder.node("copy", [source], [out], {"moves": WHOLE, "acc": acc}, name=f"{source}>{out}")


def _problem(build) -> tuple[TapeProblem, dict[str, int]]:
    """Build the problem of a graph over input x and weight w; return it and step -> number."""
    builder = Builder()
    x = builder.value("x", (SIZE,), role="input")
    builder.value("w", (SIZE,), role="parameter")
    outputs = build(builder)
    tape = tape_problem(builder.graph([x], outputs), 2, jit.host(), kept=outputs)
    return tape, {step.name: k for k, step in enumerate(tape.problem.steps)}


def _partial_sum(builder: Builder) -> list[str]:
    """s = x; s += w; r = s (a partial sum); s += w again; q = s."""
    s = builder.value("s", (SIZE,))
    sums = [builder.value(f"s{k}", (SIZE,), view_of=s) for k in (1, 2)]
    reads = [builder.value(name, (SIZE,)) for name in ("r", "q")]
    _copy(builder, "x", s)
    _copy(builder, "w", sums[0], 1)
    _copy(builder, sums[0], reads[0])
    _copy(builder, "w", sums[1], 1)
    _copy(builder, sums[1], reads[1])
    return reads


def test_readers_of_a_partial_sum_stand_between_the_updates_around_it() -> None:
    tape, at = _problem(_partial_sum)
    after = {name: set(tape.problem.steps[k].after) for name, k in at.items()}
    first, one, two = at["x>s"], at["w>s1"], at["w>s2"]
    assert after["w>s1"] >= {first}
    assert after["s1>r"] == {one}  # not only after the first write
    assert after["w>s2"] >= {first, one, at["s1>r"]}  # the sum must not continue before it is read
    assert after["s2>q"] == {two}
    steps = tape.problem.steps
    assert steps[one].updates == steps[two].updates == steps[first].writes


def test_a_step_that_reads_no_value_follows_the_inputs() -> None:
    def build(builder: Builder) -> list[str]:
        _copy(builder, "w", builder.value("a", (SIZE,)))
        _copy(builder, "x", builder.value("b", (SIZE,)))
        return ["a", "b"]

    tape, at = _problem(build)
    assert [tape.problem.steps[at[name]].after for name in ("w>a", "x>b")] == [(0,), ()]
