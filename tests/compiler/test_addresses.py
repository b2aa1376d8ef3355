"""Arenas that a 32-bit target cannot address are refused before any search."""

import pytest

import edgetrain as et
from edgetrain.bundle.writing import _target
from edgetrain.compiler.compile import plan_model
from edgetrain.compiler.plan import frontier
from edgetrain.errors import UsageError
from edgetrain.kernels import targets
from tests.bundle.conftest import two_layers  # noqa: F401 - a fixture

HUGE = 2**25  # samples; 12 float32 values each, forward and backward, take 3 GiB


@pytest.mark.parametrize("target", [t.name for t in targets.TARGETS.values()])
def test_a_large_arena_is_refused_on_32_bits_before_planning(
    two_layers,  # noqa: F811
    target: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def searched(*_: object) -> None:
        raise InterruptedError

    monkeypatch.setattr(frontier, "search_schedules", searched)
    options = {"minibatch": HUGE, "microbatch": HUGE, "threads": 1, "target": target}
    small = targets.get(target).pointer_bits == 32
    match = rf"target {target}: the arena needs at least [0-9,]+ bytes .*64-bit"
    with pytest.raises(UsageError if small else InterruptedError, match=match if small else None):
        et.compile(two_layers, **options)


def test_plans_of_microbatches_that_fit_remain(two_layers) -> None:  # noqa: F811
    options = et.api.make_options(minibatch=HUGE, target="armv7", threads=1)
    plan, front, _ = plan_model(two_layers, options)
    assert plan.candidate.microbatch < HUGE
    assert all(one.arena_nbytes <= 2**31 - 1 for one in front)


def test_a_program_of_another_target_is_refused_by_bundle(two_layers) -> None:  # noqa: F811
    program = et.compile(two_layers, minibatch=4, threads=1, target="armv7")
    large = et.program.Program(**{**vars(program), "arena_nbytes": 2**31})
    with pytest.raises(UsageError, match=r"target armv7: .* at most 2,147,483,647 .*--budget"):
        _target(large, "armv7")
    assert _target(large, "riscv64").pointer_bits == 64
