"""Documents only cite files, folders and make targets that exist; the linters are one list."""

import re
from pathlib import Path

import pytest

from tools import texts

ROOT = Path(__file__).resolve().parents[1]
_HIDDEN = {".git", ".venv", ".ci", "build", "dist", "runs", "node_modules"}
FILES = [
    path
    for path in ROOT.rglob("*")
    if path.is_file() and not _HIDDEN & set(path.relative_to(ROOT).parts)
]
NAMES = {path.name for path in FILES}
# Templates cite files written beside them.
DOCUMENTS = sorted(
    path
    for path in FILES
    if path.suffix == ".md" and not {"templates", ".pytest_cache"} & set(path.parts)
)
# Editing a kernel's text recompiles it, so citations in kernels are not checked here.
SOURCES = sorted(
    path
    for path in FILES
    if path.suffix == ".py" and path.parts[len(ROOT.parts)] in ("edgetrain", "exporters")
    if "kernels" not in path.parts
)
_CITED = re.compile(r"`([\w./-]+(?:\.(?:py|md|toml|yaml|sh|json|svg)|/))`")
_LINK = re.compile(r"\]\(([^)#\s]+)\)")


def _is_there(cited: str, document: Path) -> bool:
    if "/" not in cited:
        return cited in NAMES
    rooms = (room for room in (ROOT / "edgetrain").iterdir() if room.is_dir())
    places = (document.parent, ROOT, ROOT / "edgetrain", *rooms)
    return any((place / cited).exists() for place in places)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_documents_cite_what_is_there(document: Path) -> None:
    text = re.sub(r"```.*?```", "", document.read_text(), flags=re.S)
    links = [link for link in _LINK.findall(text) if "://" not in link]
    cited = [name for name in _CITED.findall(text) if not name.startswith("runs")]
    made_by_a_command = {
        "plan.svg",
        "plan.html",
        "run.html",
        "MANIFEST.json",
        "skipped.json",
        "history.json",
        "loss.svg",
        "board/",
        "package.json",
        "page/",
        "build/site/",
    }
    wrong = {name for name in (*links, *cited) if not _is_there(name, document)}
    assert wrong - made_by_a_command == set()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_documents_name_targets_of_make_that_are_there(document: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert set(re.findall(r"`make ([a-z-]+)", document.read_text())) <= targets


def test_sources_cite_documents_that_are_there() -> None:
    wrong = [
        (path.name, cited)
        for path in SOURCES
        for cited in re.findall(r"[\w/]+\.md\b", path.read_text())
        if not _is_there(cited, path)
    ]
    assert wrong == []


def test_pre_commit_runs_what_make_lint_runs() -> None:
    makefile, hooks = (ROOT / name for name in ("Makefile", ".pre-commit-config.yaml"))
    rule = re.search(r"^lint:.*\n((?:\t.*\n)+)", makefile.read_text(), re.M)
    assert rule is not None
    asked = [line.strip().replace("$(BIN)", ".venv/bin") for line in rule[1].splitlines()]
    assert re.findall(r"entry: (.*)", hooks.read_text()) == asked


def test_hosted_ci_runs_what_a_clone_runs() -> None:
    assert "- run: .ci/run" in (ROOT / ".github/workflows/ci.yml").read_text()


def test_texts_are_drawn_by_their_seed_from_every_kind() -> None:
    drawn = texts.drawn(0, 100)
    assert drawn == texts.drawn(0, 100) != texts.drawn(1, 100)
    assert {kind: sum(row[0] == kind for row in drawn) for kind in texts.SOURCES} == dict.fromkeys(
        texts.SOURCES, 25
    )


def test_paragraphs_are_short_enough_to_read() -> None:
    """The longest are lists, one bullet per line."""
    assert texts.longest(1)[0][0] <= 200
