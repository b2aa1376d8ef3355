"""Compiles a model for inference only: a Program with just an evaluation tape for all outputs."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ..ir import Graph, Value
from ..kernels import targets
from ..ops.model import Model
from ..program import Program, Slot
from . import arena, remat
from .bind import bind
from .model.outputs import computable
from .options import Options
from .passes import fusion
from .passes.precision import assign_storage
from .passes.verify import verify
from .tapes.assemble import KernelTable, TapeCode, persistent_offsets, stored
from .tapes.steps import buffers_of, tape_problem


def forward_program(
    model: Model,
    batch: int,
    *,
    dims: Mapping[str, int] | None = None,
    precision: str = "fp32",
    threads: int = 2,
) -> Program:
    """Compile inference of the model, with running statistics and without dropout.

    Args:
      model: with known batch axes. The tape reads inputs with samples along axis 0, and writes
        outputs as the file declares them.
      batch: samples per run.
      dims: sizes of the other symbolic dimensions.
    Raises:
      ModelError, UsageError: see bind.
    """
    bound = bind(computable(model), batch, dims)
    graph = _evaluation(bound.graph, precision)
    host = targets.host()
    made = [name for name in graph.outputs if not _is_persistent(graph, name)]
    tape = tape_problem(graph, threads, host.processor, kept=made)
    order = remat.store_all(tape.problem, 0)[0]
    simulation = remat.simulate(tape.problem, order)
    placed = buffers_of(tape.problem, order, simulation)
    offsets, height = arena.place(placed.buffers)
    persistent, base = persistent_offsets(
        [v for v in graph.values.values() if v.persistent and not v.view_of]
    )
    code, kernels = TapeCode(tape, order, simulation, placed, tuple(offsets), base), KernelTable()
    words, none = code.encode(persistent, kernels), np.zeros(0, np.int64)
    tapes = {"micro": none, "update": none, "rewire": none, "eval": words}
    return Program(
        arena_nbytes=base + height,
        threads=threads,
        minibatch=batch,
        microbatch=batch,
        kernels=tuple(kernels.index),
        tapes=tapes,
        persistent=tuple(_slot(graph.values[name], index) for name, index in persistent.items()),
        inputs={"eval": code.first(graph.inputs)},
        targets={},
        outputs={"eval": _outputs(graph, code, persistent)},
        init={n: stored(a, graph, n) for n, a in bound.arrays.items() if n in persistent},
        account={"arena_nbytes": base + height},
        recipe={"outputs": list(bound.outputs), "seed": 0},
        model_name=model.name,
        work=kernels.work(tapes, threads, host.lanes),
        revisions=kernels.revisions(),
    )


def _is_persistent(graph: Graph, name: str) -> bool:
    return graph.values[graph.root(name)].persistent


def _slot(value: Value, offset: int) -> Slot:
    return Slot(value.name, offset, value.shape, value.dtype, value.role)


def _outputs(graph: Graph, code: TapeCode, persistent: Mapping[str, int]) -> tuple[Slot, ...]:
    """Slots of the outputs, which may also be weights, statistics or constants."""
    return tuple(
        _slot(graph.values[name], persistent[graph.root(name)])
        if _is_persistent(graph, name)
        else code.last([name])[0]
        for name in graph.outputs
    )


def _evaluation(forward: Graph, precision: str) -> Graph:
    graph = fusion.evaluation_graph(fusion.absorb_activations(forward))
    for a_pass in (fusion.apply_in_readers, fusion.drop_views):
        graph = verify(a_pass(graph))
    control = Value("ctl", (64,), "i64", "control")
    graph = replace(graph, values={**graph.values, "ctl": control})
    return verify(assign_storage(graph, Options(precision=precision)))
