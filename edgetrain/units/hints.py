"""Suggestions for unknown names: names in other tools, and typos.

The tables of names are only imported for an error: on a device they would take 30 KB.
"""

from collections.abc import Collection


def place_of(name: str) -> str:
    """ " Pass .. to .. instead." for an option of another function; "" if unknown."""
    from .other_names import ELSEWHERE, PLACES, SPELT

    own = ELSEWHERE.get(name, name)
    place = PLACES.get(own)
    return f" Pass {SPELT.get(own, own)}=.. to {place} instead." if place else ""


def meant(name: str, known: Collection[str]) -> str:
    """The name in `known` closest to `name`; "" if none is close.

    Args:
      name, known: without leading dashes; dashes and underscores are equal.
    """
    from difflib import get_close_matches

    from .other_names import ELSEWHERE

    plain = str(name).lstrip("-").partition("=")[0].replace("-", "_").lower()
    by_name = {item.lstrip("-").replace("-", "_"): item for item in known}
    if ELSEWHERE.get(plain) in by_name:
        return by_name[ELSEWHERE[plain]]
    near = get_close_matches(plain, by_name, n=1, cutoff=0.7)
    return by_name[near[0]] if near else ""


def did_you_mean(name: str, known: Collection[str]) -> str:
    """ " Did you mean ..?", or "" if no name is close."""
    result = meant(name, known)
    return f" Did you mean {result}?" if result else ""
