"""The parts of the translation benchmark: tokens, batches, greedy decoding."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from benchmarks import translation  # noqa: E402
from benchmarks.pieces import BEGIN, END, PADDING, UNKNOWN, Pieces  # noqa: E402

LINES = ["ein Hund rennt.", "ein Hund, ein Mann", "der Mann rennt schnell", "ein Ball."]
TINY = translation.Settings(
    words=40, length=8, width=8, heads=2, encoder=(3,), decoder=(3,), minibatch=4, microbatch=2,
    lr=0.01, warmup=1, threads=1,
)  # fmt: skip


def test_pieces_join_to_the_text_they_were_made_of():
    pieces = Pieces(LINES, 40)
    assert len(pieces.names) == 40 and len(set(pieces.names[UNKNOWN:])) == 40 - UNKNOWN
    assert [pieces.decode(pieces.encode(line)) for line in LINES] == LINES
    assert pieces.encode("ein") == [pieces.names.index(" ein")]  # most frequent word: one piece
    assert pieces.encode("Zug") == [pieces.names.index(" "), UNKNOWN, *pieces.encode("ug")[1:]]
    assert UNKNOWN not in pieces.encode("der Ball")


def test_pieces_of_many_merges_are_those_of_counting_anew():
    pieces = Pieces(LINES, 1000)  # more than can be learned: in the end, each word is one piece
    words = {word for line in LINES for word in f" {line}".replace(".", " .").split()}
    assert {f" {word}" for word in words if word.isalpha()} < set(pieces.names)


def test_decode_ends_with_the_sentence():
    pieces = Pieces(LINES, 40)
    ids = [BEGIN, *pieces.encode("ein Ball."), END, *pieces.encode("Mann")]
    assert pieces.decode(ids) == "ein Ball."
    assert pieces.decode([PADDING]) == ""


def test_arrays_shift_the_target_and_cut_what_is_long():
    pieces = Pieces(LINES, 1000)
    found = translation.arrays(pieces, ["ein Hund", LINES[2]], ["Ball", "ein Mann rennt"], 4)
    a, dog, man, runs, ball = (
        pieces.encode(w)[0] for w in ("ein", "Hund", "Mann", "rennt", "Ball")
    )
    the, fast = (pieces.encode(word)[0] for word in ("der", "schnell"))
    assert {name: array.tolist() for name, array in found.items()} == {
        "source": [[a, dog, END, PADDING], [the, man, runs, fast]],
        "target": [[BEGIN, ball, PADDING, PADDING], [BEGIN, a, man, runs]],
        "y": [[ball, END, PADDING, PADDING], [a, man, runs, END]],
    }


def _copies(source, target):
    """Logits of a model that copies its source."""
    given = target[:, 1:] != PADDING
    assert (target[:, 0] == BEGIN).all()
    assert np.array_equal(target[:, 1:][given], source[:, :-1][given])
    return np.eye(40, dtype=np.float32)[source]


def test_greedy_goes_on_from_what_it_chose_until_every_sentence_ends():
    source = translation.padded([[5, 6, END], [7, END], [8, 9, 10, 11, 12, 13]], 4)
    assert translation.greedy(_copies, source).tolist() == [
        [5, 6, END, PADDING], [7, END, PADDING, PADDING], [8, 9, 10, 11]
    ]  # fmt: skip


def test_translated_keeps_the_order_of_the_lines():
    pieces = Pieces(LINES, 40)
    assert translation.translated(_copies, pieces, LINES, 32, at_once=3) == LINES


def test_bleu_of_the_same_is_whole():
    pytest.importorskip("sacrebleu")
    assert translation.bleu(LINES, LINES) == "100.00"


@pytest.mark.slow
def test_training_takes_the_steps_of_torch(tmp_path):
    for split in ("train", "test"):
        for language in ("de", "en"):
            (tmp_path / f"{split}.{language}").write_text("\n".join(LINES * 3), "utf-8")
    found = [*translation.lines(tmp_path, TINY, 2, None, ("fp32", "torch"))]
    ours, theirs = ([*map(float, row.split("|")[3].split(","))] for row in found[-2:])
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)  # other summation orders


def test_a_masked_net_reads_no_padding():
    torch.manual_seed(0)
    module = translation.net(TINY, 40).eval()
    source, target = torch.randint(3, 40, (2, 6)), torch.randint(3, 40, (2, 6))
    longer = torch.nn.functional.pad(source, (0, 3)), torch.nn.functional.pad(target, (0, 3))
    mask = torch.nn.functional.pad(torch.ones(2, 6), (0, 3))
    assert torch.allclose(module(*longer, mask)[:, :6], module(source, target), atol=1e-6)


@pytest.mark.slow
def test_runs_of_whole_sentences_learn():
    pieces = Pieces(LINES, 40)
    texts = {"train.de": LINES * 4, "train.en": LINES * 4}
    data = translation._data(pieces, texts, 8, masked=True)
    settings = translation.replace(TINY, lengths=(6, 8))
    module = translation.net(settings, 40)
    for name in translation.MASKED:
        run = translation.train_masked(name, module, data, settings, 2)
        assert np.isfinite(run.losses).all() and run.losses[-1] < run.losses[0]
        found = translation.translated(run.logits, pieces, LINES, data["y_train"].shape[1])
        run.close()
        assert len(found) == len(LINES)
