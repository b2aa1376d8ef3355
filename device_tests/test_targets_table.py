"""The cells of the table in docs/targets.md, and when one is run again."""

from itertools import product

import pytest

from device_tests import kinds, targets_table
from device_tests.targets_table import TARGETS, Cell, cells, found, pairs
from examples.zoo import ZOO


def test_every_net_has_a_cell_for_speed_on_every_target():
    nets = {
        (kinds.EVERY[cell.kind][0], cell.target)
        for cell in cells()
        if cell.mode == "speed" and cell.storage in ("", "fp16")
    }
    assert nets >= set(product([*ZOO, *kinds.RECURRENT], TARGETS))
    assert len(set(cells())) == len(cells())


def test_other_pairs_are_covered_two_by_two():
    chosen = [cell for row in pairs().values() for cell in row]
    fp16 = [cell for cell in cells() if cell.storage == "fp16" and cell.mode == "speed"]
    storages, modes = list(kinds.STORAGES), ("speed", "size")
    assert {(c.kind, c.storage) for c in chosen} == set(product(ZOO, storages))
    assert {(c.kind, c.mode) for c in chosen} == set(product(ZOO, modes))
    assert {(c.target, c.storage) for c in chosen} == set(product(TARGETS, storages))
    assert {(c.target, c.mode) for c in chosen} == set(product(TARGETS, modes))
    assert {(c.storage, c.mode) for c in [*chosen, *fp16]} == set(product(storages, modes))


@pytest.mark.slow
def test_a_cell_is_run_again_where_its_program_or_code_changed(monkeypatch):
    cell = Cell("mlp", "x86-64-v3", "fp32", "size")
    first = found(cell, None)
    assert first["digest"] == first["expected"]
    monkeypatch.setattr(targets_table, "checked", lambda *_: 0)
    assert found(cell, first) is first
    assert found(cell._replace(mode="speed"), first)["digest"] == "00000000"
    assert found(cell._replace(storage="fp16"), first)["digest"] == "00000000"


@pytest.mark.slow
def test_only_changed_cells_run_on_the_emulated_pc(monkeypatch):
    same = Cell("mlp", "x86-64-v4", "fp32", "size")
    changed = same._replace(mode="speed")
    ran: list[str] = []

    def outputs(programs, arguments, folder):
        assert all(path.is_file() for path in programs.values())
        ran.extend(programs)
        return {name: "12ab some text" for name in programs}

    monkeypatch.setattr(targets_table.avx512, "outputs", outputs)
    ((_, first),) = targets_table.emulated([same], {})
    kept = {same.target: {"kinds": {same.row: first, changed.row: first}}}
    found = dict(targets_table.emulated([same, changed], kept))
    assert ran == [same.row, changed.row]
    assert found[same] is first and found[changed]["digest"] == "000012ab"
    assert found[changed]["key"] != first["key"]
