"""Small problems for the planner tests."""

import random

from edgetrain.compiler.remat import Problem, Step


def chain(depth: int, nbytes: int = 4, saved: int = 0) -> Problem:
    """A chain x0 -> x1 .. -> x<depth>; backward k reads x[k-1], x[k] and the saved value of F k."""
    sizes = [nbytes] * (depth + 1) + [saved] * (depth + 1) + [nbytes] * (depth + 1)
    steps = []
    for k in range(1, depth + 1):
        writes = (k, depth + 1 + k) if saved else (k,)
        steps.append(Step(k - 1, f"F{k}", (k - 1,), writes, cost=1, flops=1, recomputable=True))
    for at, k in enumerate(range(depth, 0, -1)):
        grad = 2 * depth + 2 + k
        reads = (k - 1, k) + ((depth + 1 + k,) if saved else ())
        reads += (grad,) if k < depth else ()
        steps.append(
            Step(
                depth + at,
                f"B{k}",
                reads,
                (grad,) if k == depth else (),
                (grad - 1,) if k > 1 else (),
                after=(depth + at - 1,),
                cost=2,
            )
        )
    optional = frozenset(range(depth + 1, 2 * depth + 2))
    return Problem(tuple(sizes), tuple(steps), frozenset({0}), optional=optional)


def random_problem(seed: int, forwards: int = 8) -> Problem:
    """A random graph with branches, saved values, workspaces and in-place steps."""
    rng = random.Random(seed)
    sizes = [rng.randrange(1, 5)]
    steps: list[Step] = []
    values, touched = [0], []
    for k in range(forwards):
        reads = tuple(sorted({values[-1], rng.choice(values)}))
        out = len(sizes)
        sizes += [rng.choice([sizes[reads[-1]], rng.randrange(1, 9)]), rng.randrange(1, 5)]
        inplace = ((out, reads[-1]),) if rng.random() < 0.3 else ()
        cost = rng.randrange(1, 5)
        steps.append(
            Step(
                k,
                f"F{k}",
                reads,
                (out, out + 1),
                (),
                (),
                rng.randrange(3),
                cost,
                cost,
                True,
                inplace,
            )
        )
        values.append(out)
        touched.append((reads, out))
    grads: dict[int, int] = {}
    for reads, out in reversed(touched):
        wanted = [v for v in reads if v]
        for v in [out, *wanted]:
            if v not in grads:
                grads[v] = len(sizes)
                sizes.append(sizes[v])
        k = len(steps)
        first = out == touched[-1][1]
        steps.append(
            Step(
                k,
                f"B{k}",
                (out + 1, *reads) + (() if first else (grads[out],)),
                (grads[out],) if first else (),
                tuple(grads[v] for v in wanted),
                (k - 1,),
                rng.randrange(3),
                2,
            )
        )
    optional = frozenset(out + 1 for _, out in touched if rng.random() < 0.5)
    return Problem(tuple(sizes), tuple(steps), frozenset({0}), frozenset({2}), optional)
