"""Counts and lists in messages."""

import pytest

from edgetrain.units.wording import counted, listed


@pytest.mark.parametrize(
    ("n", "noun", "words"),
    [
        (0, "sample", "0 samples"),
        (1, "sample", "1 sample"),
        (2, "step", "2 steps"),
        (1, "class", "1 class"),
        (3, "class", "3 classes"),
    ],
)
def test_counted_has_the_nouns_number(n: int, noun: str, words: str) -> None:
    assert counted(n, noun) == words


def test_listed_never_cuts_a_name_of_several() -> None:
    assert listed([]) == "" and listed(["a"]) == "a" and listed(["a", "b"]) == "a, b"
    assert listed(["a", "b", "c"], 2) == "a, b and 1 more"
    assert listed(["a" * 90, "b" * 90, "c" * 90]) == f"{'a' * 90}, {'b' * 90} and 1 more"
    assert listed(["a" * 300, "b"]) == f"{'a' * 200} and 1 more"
