"""Word pieces by byte-pair encoding over characters. Source: Sennrich et al. 2016."""

import heapq
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise

PADDING, BEGIN, END, UNKNOWN = range(4)
_WORD = re.compile(r" ?\w+| ?[^\w\s]")  # with the blank before it, so joined pieces give the text


def _merged(parts: Sequence[str], pair: tuple[str, str]) -> list[str]:
    """Replace every occurrence of the pair in `parts` by one piece."""
    out: list[str] = []
    at = 0
    while at < len(parts):
        both = tuple(parts[at : at + 2]) == pair
        out.append("".join(pair) if both else parts[at])
        at += 1 + both
    return out


def _learned(words: Counter[str], most: int) -> list[tuple[str, str]]:
    """Learn up to `most` merges, most frequent pair first."""
    parts = {word: list(word) for word in words}
    counts: Counter[tuple[str, str]] = Counter()
    where: dict[tuple[str, str], set[str]] = defaultdict(set)
    for word, times in words.items():
        for pair in pairwise(word):
            counts[pair] += times
            where[pair].add(word)
    heap = [(-count, pair) for pair, count in counts.items()]
    heapq.heapify(heap)
    merges: list[tuple[str, str]] = []
    while heap and len(merges) < most:
        count, pair = heapq.heappop(heap)
        if -count != counts[pair] or not count:
            continue  # the count is from before another merge: the pair is in the heap again
        merges.append(pair)
        changed = set()
        for word in where.pop(pair):
            after = _merged(parts[word], pair)
            for sign, these in ((-1, parts[word]), (1, after)):
                for other in pairwise(these):
                    counts[other] += sign * words[word]
                    where[other].add(word)
                    changed.add(other)
            parts[word] = after
        for other in changed:
            heapq.heappush(heap, (-counts[other], other))
    return merges


class Pieces:
    """Converts texts to piece ids and back.

    Args:
      texts: texts from which the pieces are learned.
      size: maximum size of the vocabulary, including four special ids.
    """

    def __init__(self, texts: Iterable[str], size: int) -> None:
        words = Counter(word for text in texts for word in _WORD.findall(f" {text}"))
        letters = Counter(letter for word in words for letter in word)
        known = sorted(letters, key=lambda letter: (-letters[letter], letter))
        known = known[: max(0, size - UNKNOWN - 1)]
        merges = _learned(words, size - UNKNOWN - 1 - len(known))
        self.names = ["", "", "", "\ufffd", *known, *("".join(pair) for pair in merges)]
        self._ids = {name: number for number, name in enumerate(self.names) if number > UNKNOWN}
        self._ranks = {pair: rank for rank, pair in enumerate(merges)}
        self._of_word = lru_cache(None)(self._split)

    def _split(self, word: str) -> list[int]:
        parts = list(word)
        while found := [pair for pair in pairwise(parts) if pair in self._ranks]:
            parts = _merged(parts, min(found, key=self._ranks.__getitem__))
        return [self._ids.get(part, UNKNOWN) for part in parts]

    def encode(self, text: str) -> list[int]:
        """Ids of a line, without BEGIN and END."""
        return [number for word in _WORD.findall(f" {text}") for number in self._of_word(word)]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the ids before the first END; PADDING and BEGIN are skipped."""
        out = []
        for number in ids:
            if number == END:
                break
            out.append(self.names[number])
        return "".join(out).strip()
