"""Compiles a model for inference only: a Program with just an evaluation tape for all outputs."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ..ir import Graph, Value
from ..kernels import targets
from ..ops.model import Model
from ..program import Program, Slot
from . import arena, remat
from .arena.problem import aligned
from .bind import bind
from .model.outputs import computable
from .options import Options
from .passes import fusion
from .passes.precision import assign_storage
from .passes.verify import verify
from .tapes.assemble import KernelTable, TapeCode, stored
from .tapes.steps import ALIGN, buffers_of, tape_problem


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
    lasting = [name for name in graph.outputs if graph.values[graph.root(name)].persistent]
    made = [name for name in graph.outputs if name not in lasting]
    tape = tape_problem(graph, threads, host.processor, kept=made)
    order = remat.store_all(tape.problem, 0)[0]
    simulation = remat.simulate(tape.problem, order)
    placed = buffers_of(tape.problem, order, simulation)
    offsets, height = arena.place(placed.buffers)
    persistent, at = {}, 0
    for value in graph.values.values():
        if value.persistent and not value.view_of:
            persistent[value.name] = at
            at += aligned(value.nbytes, ALIGN)
    code, kernels = TapeCode(tape, order, simulation, placed, tuple(offsets), at), KernelTable()
    words, none = code.encode(persistent, kernels), np.zeros(0, np.int64)
    slots = dict(zip(made, code.last(made), strict=True))
    for value in (graph.values[name] for name in lasting):  # weights, statistics, constants
        at_root = persistent[graph.root(value.name)]
        slots[value.name] = Slot(value.name, at_root, value.shape, value.dtype, value.role)
    tapes = {"micro": none, "update": none, "rewire": none, "eval": words}
    values = {name: graph.values[name] for name in persistent}
    return Program(
        arena_nbytes=at + height,
        threads=threads,
        minibatch=batch,
        microbatch=batch,
        kernels=tuple(kernels.index),
        tapes=tapes,
        persistent=tuple(
            Slot(v.name, persistent[v.name], v.shape, v.dtype, v.role) for v in values.values()
        ),
        inputs={"eval": code.first(graph.inputs)},
        targets={},
        outputs={"eval": tuple(slots[name] for name in graph.outputs)},
        init={n: stored(a, graph, n) for n, a in bound.arrays.items() if n in persistent},
        account={"arena_nbytes": at + height},
        recipe={"outputs": list(bound.outputs), "seed": 0},
        model_name=model.name,
        work=kernels.work(tapes, threads, host.lanes),
        revisions=kernels.revisions(),
    )


def _evaluation(forward: Graph, precision: str) -> Graph:
    graph = fusion.evaluation_graph(fusion.absorb_activations(forward))
    for a_pass in (fusion.apply_in_readers, fusion.drop_views):
        graph = verify(a_pass(graph))
    control = Value("ctl", (64,), "i64", "control")
    graph = replace(graph, values={**graph.values, "ctl": control})
    return verify(assign_storage(graph, Options(precision=precision)))
