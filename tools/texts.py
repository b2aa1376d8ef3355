"""Texts that users read, for a reader to judge: a seeded sample, or the longest paragraphs.

    python -m tools.texts [--seed N] [--count 100]      from help, errors, docs and docstrings alike
    python -m tools.texts --longest 25                  paragraphs of README.md and docs/

The same seed draws the same texts as long as the texts stay the same.
"""

import argparse
import ast
import inspect
import random
import re
from collections.abc import Iterator
from pathlib import Path

import edgetrain
from edgetrain.cli.parser.host_commands import command_parsers

ROOT = Path(__file__).resolve().parents[1]
_SHORTEST = 20  # minimum length of a text, in characters


def paragraphs() -> Iterator[tuple[str, str]]:
    """(place, text) of README.md and docs/: prose only, without code, tables, lists or headings."""
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.M | re.S)
        for block in re.split(r"\n\s*\n", text):
            if not block.startswith(("#", "|", "    ", "!", "<!--", ":::", "---")):
                yield str(path.relative_to(ROOT)), " ".join(block.split())


def helps() -> Iterator[tuple[str, str]]:
    """(command and option, text) from `--help-all`."""
    for name, parser in command_parsers().items():
        yield f"edgetrain {name}", parser.description or ""
        for action in parser._actions:
            if action.help and not action.help.startswith("=="):
                flag = action.option_strings[-1] if action.option_strings else action.dest
                yield f"edgetrain {name} {flag}", action.help.replace("%%", "%")


def errors() -> Iterator[tuple[str, str]]:
    """(file:line, text) of messages in exceptions that the package raises."""
    for path in sorted((ROOT / "edgetrain").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
                words = _words(node.exc.args[0])
                if words:
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", words


def _words(node: ast.expr) -> str:
    """A string, or an f-string with {..} in place of values; "" for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_words(v) if isinstance(v, ast.Constant) else "{..}" for v in node.values)
    return ""


def docstrings() -> Iterator[tuple[str, str]]:
    """(name, first paragraph) of public classes, functions and their public members."""
    for name in edgetrain.__all__:
        found = getattr(edgetrain, name)
        members = vars(found).items() if inspect.isclass(found) else ()
        for own, member in [("", found), *((f".{key}", value) for key, value in members)]:
            text = (
                inspect.getdoc(member) if callable(member) or isinstance(member, property) else ""
            )
            if text and not own.startswith("._"):
                yield f"edgetrain.{name}{own}", " ".join(text.split("\n\n")[0].split())


SOURCES = {"docs": paragraphs, "help": helps, "errors": errors, "docstrings": docstrings}


def drawn(seed: int, count: int) -> list[tuple[str, str, str]]:
    """(kind, place, text): equally many of each kind, if there are enough."""
    chance = random.Random(seed)
    out = []
    for kind, texts in SOURCES.items():
        known = {text: place for place, text in texts() if len(text) >= _SHORTEST}
        some = chance.sample(sorted(known), min(len(known), count // len(SOURCES)))
        out += [(kind, known[text], text) for text in some]
    return out


def longest(count: int) -> list[tuple[int, str, str]]:
    """(words, place, text) of the longest paragraphs, longest first."""
    rows = [(len(text.split()), place, text) for place, text in paragraphs()]
    return sorted(rows, key=lambda row: (-row[0], row[1:]))[:count]


def main() -> None:
    """Print them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="of the draw (default: 0)")
    parser.add_argument("--count", type=int, default=100, help="texts to draw (default: 100)")
    parser.add_argument("--longest", type=int, metavar="N", help="the N longest paragraphs instead")
    given = parser.parse_args()
    if given.longest:
        for words, place, text in longest(given.longest):
            print(f"{words:4d}  {place}: {text[:80]}")
        return
    for number, (kind, place, text) in enumerate(drawn(given.seed, given.count), 1):
        print(f"{number}. [{kind}] {place}\n   {text}")


if __name__ == "__main__":
    main()
