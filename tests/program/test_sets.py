"""Several tape sets in one Program share one set of weights, whichever set runs."""

import copy
import json

import numpy as np
import pytest

import edgetrain as et
from edgetrain.api import verify
from edgetrain.cli import main
from edgetrain.errors import BudgetError, ProgramError, UsageError
from edgetrain.program import KIND, TAPES, VERSION
from edgetrain.program.container import read_container, write_container
from edgetrain.runtime.loading.program import load_program
from edgetrain.runtime.session import Session

from ..digests import digest
from .sets import LENGTHS, OPTIONS, arenas, lengths, of_length, sequences

RNG = np.random.default_rng(5)
X = {length: RNG.standard_normal((24, length, 4)).astype(np.float32) for length in (*LENGTHS, 40)}
Y = RNG.integers(0, 3, 24)


def parts(path):
    """Tensors and fields of a Program's file."""
    tensors, meta = read_container(path, kind=KIND, versions=range(VERSION, VERSION + 1))
    return {name: np.array(a) for name, a in tensors.items()}, json.loads(meta["program"])


def minibatch(session, number):
    """A step on eight samples of the length of the session's set."""
    length = session.program.dims["T"]

    def fill(indices):
        buffers = session.buffers("micro")
        buffers["x"][...] = X[length][indices]
        buffers["loss.target"][...] = Y[indices].reshape(buffers["loss.target"].shape)

    return session.minibatch(24, fill)


def test_sets_come_back_from_the_file_and_weights_are_there_once(tmp_path):
    program = lengths()
    path = program.save(tmp_path / "m.edge")
    found, (tensors, fields) = load_program(path), parts(path)
    assert [one.label for one in found.sets] == [one.label for one in program.sets]
    own = {name for name in tensors if name.startswith("set.")}
    assert {n for n in own if ".tape." in n} == {f"set.1.tape.{name}" for name in TAPES}
    initial = {n.removeprefix("set.1.init.") for n in own if ".init." in n}
    roles = {slot["name"]: slot["role"] for slot in fields["sets"][0]["persistent"]}
    assert initial and {roles[name] for name in initial} == {"constant"}
    for one, other in zip(found.sets, program.sets, strict=True):
        assert one.kernels == other.kernels and one.persistent == other.persistent
        for name in TAPES:
            np.testing.assert_array_equal(one.tapes[name], other.tapes[name])
        assert one.init.keys() == other.init.keys()
        for name, array in other.init.items():
            np.testing.assert_array_equal(one.init[name], array)
    assert found.save(tmp_path / "again.edge").read_bytes() == path.read_bytes()


def test_a_program_of_one_set_has_no_list_of_sets(tmp_path):
    _, fields = parts(of_length(3).save(tmp_path / "m.edge"))
    assert "sets" not in fields


@pytest.mark.parametrize("make", [arenas, lengths])
def test_every_set_trains_as_the_program_that_it_came_from(make, tmp_path):
    found, ends = load_program(make().save(tmp_path / "m.edge")), []
    for one in found.sets:
        chosen = found.chosen(dims=one.dims, budget=one.arena_nbytes)
        assert chosen.key == one.key and {s.key for s in chosen.sets} == {s.key for s in found.sets}
        trainer = et.Trainer(chosen, (X[one.dims["T"]], Y))
        trainer.fit(steps=5)
        ends.append(digest(trainer.session.state()))
        assert trainer.session.arena.nbytes == one.arena_nbytes
        trainer.close()
    if make is arenas:  # the plan changes no bit
        assert ends[0] == ends[1]
        return
    alone = et.Trainer(of_length(LENGTHS[1]), (X[LENGTHS[1]], Y))
    alone.fit(steps=5)
    assert ends[1] == digest(alone.session.state()) != ends[0]
    alone.close()


def test_a_session_changes_sets_between_steps_and_keeps_state():
    """Like sessions with one set each that pass on weights, state and counters."""
    program = lengths()
    short = program.chosen(dims={"T": LENGTHS[1]})
    session = Session(program, sets=[short])
    assert session.arena.nbytes == max(one.arena_nbytes for one in program.sets)
    state, counters, losses = None, None, []
    for number, now in enumerate((program, short, short, program, short)):
        session.change(now)
        losses.append(minibatch(session, number).loss)
        alone = Session(of_length(now.dims["T"]))
        if state is not None:
            for name, array in state.items():
                alone.values[name][...] = array
            alone.set_counters(number, counters)
        assert minibatch(alone, number).loss == losses[-1]
        state = {name: array.copy() for name, array in alone.state().items()}
        counters = alone.counters()
        assert digest(session.state()) == digest(state) and session.counters() == counters
        alone.close()
    assert len(set(losses)) == len(losses)
    session.close()


def test_a_session_refuses_a_set_that_it_was_not_opened_with():
    program = lengths()
    session = Session(program)
    with pytest.raises(UsageError, match="T=3.* T=5"):
        session.change(program.chosen(dims={"T": 3}))
    session.close()


def test_chosen_takes_the_largest_arena_that_fits():
    program = arenas()
    large, small = (one.arena_nbytes for one in program.sets)
    assert program.chosen(budget=large - 1).arena_nbytes == small
    assert program.chosen(budget=f"{2 * large}").arena_nbytes == large
    with pytest.raises(BudgetError, match="no tape set fits") as raised:
        program.chosen(budget=small - 1)
    assert raised.value.min_budget_nbytes == small
    with pytest.raises(UsageError, match=r"no tape set for {'T': 7}; .* T=40"):
        program.chosen(dims={"T": 7})


@pytest.mark.parametrize(
    "options, says",
    [
        ({}, "two sets .* arena"),
        ({"optimizer": et.SGD(lr=0.2)}, "recipe.optimizer"),
        ({"seed": 4}, "recipe.seed"),
        ({"threads": 2}, "its threads "),
        ({"minibatch": 4, "threads": 1}, "minibatch 4, microbatch 4; .* 8 and 4"),
        ({"freeze": ("in.w",)}, "recipe.freeze "),
    ],
)
def test_sets_that_do_not_belong_together_are_refused(options, says):
    with pytest.raises(ProgramError, match=says):
        of_length(5).joined([of_length(5, **options)])


def test_a_set_of_another_model_or_other_weights_is_refused():
    program = of_length(5)
    wider = et.compile(sequences(8), dims={"T": 3}, **OPTIONS)
    with pytest.raises(ProgramError, match="its onnx "):
        program.joined([wider])
    other = copy.copy(of_length(3))
    moved = {**other.init, "in.w": other.init["in.w"] + 1}
    object.__setattr__(other, "init", moved)
    with pytest.raises(ProgramError, match="initial 'in.w' differs"):
        program.joined([other])


def _twice(tensors, fields):
    fields["sets"].append(copy.deepcopy(fields["sets"][0]))
    tensors |= {n.replace("set.1", "set.2"): a for n, a in tensors.items() if "set.1" in n}


def _resized(tensors, fields):
    next(s for s in fields["sets"][0]["persistent"] if s["name"] == "in.w")["shape"] = [4, 5]


def _moved(tensors, fields):
    slots = fields["sets"][0]["persistent"]
    one, other = (next(s for s in slots if s["name"] == n) for n in ("in.w", "in.w.grad"))
    one["offset"], other["offset"] = other["offset"], one["offset"]


def _without_tape(tensors, fields):
    del tensors["set.1.tape.update"]


def _of_no_set(tensors, fields):
    tensors["set.2.tape.micro"] = tensors["set.1.tape.micro"]


def _own_weight(tensors, fields):
    tensors["set.1.init.in.w"] = tensors["init.in.w"]


def _own_model(tensors, fields):
    fields["sets"][0]["model_name"] = "another"


def _other_recipe(tensors, fields):
    fields["sets"][0]["recipe"]["optimizer"]["lr"] = 7.0


def _other_microbatch(tensors, fields):
    fields["sets"][0]["microbatch"] = 3


def _other_inputs(tensors, fields):
    fields["sets"][0]["inputs"]["micro"][0]["name"] = "y"


def _none(tensors, fields):
    fields["sets"] = []


@pytest.mark.parametrize(
    "change, says",
    [
        (_twice, "set T=3, .* two sets .* arena"),
        (_resized, "set T=3, .*'init.in.w'"),
        (_moved, "set T=3, .* slot 'in.w' "),
        (_without_tape, "tensor set.1.tape.update: expected a row of int64, found none"),
        (_of_no_set, "'set.2.tape.micro'.*: expected no tensor of this name"),
        (_own_weight, "'set.1.init.in.w'.*: expected a constant of the set, found one of all"),
        (_own_model, r"sets\[0\].model_name: expected no field of this name"),
        (_other_recipe, "set T=3, .* recipe.optimizer "),
        (_other_microbatch, "set T=3, .* 3 does not divide the minibatch 8"),
        (_other_inputs, "set T=3, .* its inputs "),
        (_none, "sets: expected a list of 1 to 255 items"),
    ],
)
def test_a_file_whose_sets_contradict_is_refused(change, says, tmp_path):
    path = lengths().save(tmp_path / "m.edge")
    tensors, fields = parts(path)
    change(tensors, fields)
    write_container(path, tensors, {"program": json.dumps(fields)}, kind=KIND, version=VERSION)
    with pytest.raises(ProgramError, match=says):
        load_program(path)


def test_a_set_that_leaves_its_arena_is_refused_before_it_runs(tmp_path):
    path = lengths().save(tmp_path / "m.edge")
    tensors, fields = parts(path)
    other = fields["sets"][0]
    other["arena_nbytes"] = other["account"]["arena_nbytes"] = 64 * (
        max(slot["offset"] for slot in other["persistent"]) // 64
    )
    write_container(path, tensors, {"program": json.dumps(fields)}, kind=KIND, version=VERSION)
    found = load_program(path)
    Session(found).close()
    with pytest.raises(ProgramError, match="Compile the model again"):
        Session(found, sets=[found.chosen(dims={"T": 3})])


def test_inspect_lists_the_sets_and_verifies_each(tmp_path, capsys):
    path = lengths().save(tmp_path / "m.edge")
    assert main(["inspect", str(path), "--verify"]) == 0
    out = capsys.readouterr().out
    assert "2 sets of tapes, the default first" in out
    assert all(one.label in out for one in lengths().sets)
    assert main(["inspect", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["sets"]
    assert [one["dims"] for one in told] == [{"T": length} for length in LENGTHS]
    assert [one["arena_nbytes"] for one in told] == [s.arena_nbytes for s in lengths().sets]


def test_verify_finds_a_wrong_word_in_any_set():
    program = copy.copy(lengths())
    other = copy.copy(program.others[0])
    words = other.tapes["update"].copy()
    at = next(k for k, w in enumerate(words) if w == program.slot("deep.w").offset != 0)
    words[at] = program.slot("in.w").offset
    object.__setattr__(other, "tapes", {**other.tapes, "update": words})
    object.__setattr__(program, "others", (other,))
    verify(lengths())
    with pytest.raises(ProgramError, match="tape update word"):
        verify(program)


def test_a_bundle_has_the_default_set_and_says_what_it_leaves_out(tmp_path, capsys):
    path = lengths().save(tmp_path / "m.edge")
    assert main(["bundle", str(path), "-o", str(tmp_path / "lib")]) == 0
    default, other = (one.label for one in lengths().sets)
    assert f"tapes  of {default} (the default); left out: {other}" in capsys.readouterr().out
    told = json.loads((tmp_path / "lib" / "MANIFEST.json").read_text())["tapes"]
    assert told == {"set": default, "left_out": [other]}


def test_a_run_is_migrated_with_all_of_its_sets(tmp_path):
    run = tmp_path / "run"
    with et.Trainer(lengths(), (X[5], Y), run) as trainer:
        trainer.fit(steps=2)
    found = load_program(et.migrate(run).path / "program.edge")
    assert [one.dims for one in found.sets] == [one.dims for one in lengths().sets]
    with et.Trainer(found, (X[5], Y), run) as trainer:
        assert trainer.resume() and trainer.steps == 2
