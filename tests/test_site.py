"""The site: every command and line of Python on its pages runs; it is complete and current."""

import importlib
import re
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path

import pytest

from benchmarks import docs
from tests.bundle import browser
from tests.bundle.browser import CLICK, DRAW, SEVEN
from tests.bundle.node import missing
from tools import site_module, site_pages

ROOT = Path(__file__).resolve().parents[1]
PAGES = {path.name: path for path in sorted((ROOT / "docs").rglob("*.md"))}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)
MISSING = {"browser.md": missing}  # why a page cannot be run here, or ""
NEEDS = {"federate.md": "flwr"}  # without this package, the page is not run
SLOW = {"torch.md", "board.md", "browser.md", "budgets.md"}  # exports, bundles, many plans


def runs(path: Path) -> list[tuple[str, str]]:
    """(language, text) of the blocks to run."""
    return [b for b in BLOCK.findall(path.read_text()) if b[0] in ("console", "python")]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name
        for name, path in PAGES.items()
        if runs(path)
    ],
)
def test_pages_run_from_the_top_down(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[str, object] = {}
    if why := MISSING.get(name, str)():
        pytest.skip(why)
    if name in NEEDS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # from its own dependencies
            pytest.importorskip(NEEDS[name])
    with docs.folder():
        for language, text in runs(PAGES[name]):
            if language == "python":
                exec(compile(text, name, "exec"), known)
                continue
            shown = [*text.splitlines(), "```"]
            assert list(docs.replayed(shown)) == shown


@pytest.mark.parametrize("name", PAGES)
def test_pages_show_no_command_that_is_not_run(name: str) -> None:
    text = PAGES[name].read_text()
    other = [body for language, body in BLOCK.findall(text) if language != "console"]
    indented = re.findall(r"^ {4,}(.*)$", BLOCK.sub("", text), re.M)
    lines = [line for body in other for line in body.splitlines()] + indented
    assert [line for line in lines if re.match(r"\s*\$?\s*edgetrain ", line)] == []


SHELL = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in sorted([*ROOT.glob("*.md"), *(ROOT / "examples").rglob("*.md"), *PAGES.values()])
}


@pytest.mark.parametrize("name", SHELL)
def test_lines_of_the_shell_name_what_is_there(name: str) -> None:
    """Modules, extras and make folders; calls of `edgetrain` itself are run above."""
    text, project = SHELL[name], tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    known = project["optional-dependencies"].keys()
    assert {*re.findall(r"pip install '?[\w.-]+\[(\w+)\]", text)} <= {*known}
    for module in re.findall(r"python -m ((?:benchmarks|examples|tools|edgetrain)[\w.]*)", text):
        place = ROOT / module.rstrip(".").replace(".", "/")
        assert place.with_suffix(".py").exists() or (place / "__main__.py").exists(), module
    for folder, target in re.findall(r"make -C (\S+)[^\n]*?(?: (\w+))?$", text, re.M):
        rules = (ROOT / folder / "Makefile").read_text()
        assert not target or re.search(rf"^{target}:", rules, re.M), (folder, target)


@pytest.mark.parametrize("name", site_pages.PAGES)
def test_pages_from_the_code_are_current(name: str) -> None:
    assert (ROOT / "docs" / name).read_text() == site_pages.PAGES[name]()


def test_every_page_is_in_the_site() -> None:
    listed = set(re.findall(r": ([\w/.-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M))
    assert listed == {str(path.relative_to(ROOT / "docs")) for path in PAGES.values()}


def test_names_of_the_python_page_are_where_it_says() -> None:
    """mkdocstrings reads sources, so names must be defined in the module that is named."""
    names = re.findall(r"^::: ([\w.]+)$", (ROOT / "docs" / "api.md").read_text(), re.M)
    for name in names:
        module, _, own = name.rpartition(".")
        assert getattr(importlib.import_module(module), own).__module__ == module, name
    assert names


def test_the_first_page_has_the_network_or_says_why_not() -> None:
    text = (ROOT / "docs" / "index.md").read_text()
    there, absent = site_module.shown(text, ""), site_module.shown(text, "no linker")
    assert f'src="{site_module.NAME}?small"' in there and "linker" not in there
    assert "<iframe" not in absent and "linker" in absent and "(browser.md)" in absent


@pytest.mark.slow
def test_the_first_page_s_network_recognises_and_learns_from_a_disk(tmp_path: Path) -> None:
    """A file that works without a server: already trained, corrected by the user, saved."""
    if why := browser.missing() or missing():
        pytest.skip(why)
    place = tmp_path / site_module.NAME
    place.write_bytes(site_module.digits_page())
    with browser.tab(tmp_path / "profile") as page:
        page.open(f"file://{place}?small")
        ready = page.waited(lambda facts: "ready" in facts and "accuracy" in facts)
        assert float(ready["accuracy"]) >= 0.97
        page.run(DRAW, SEVEN)
        assert page.waited(lambda facts: "guess" in facts)["guess"] == "7"
        page.run(CLICK, ".guess[data-k='3']")
        page.waited(lambda facts: facts.get("lessons") == "1" and facts["guess"] == "3")
        (tmp_path / "site.png").write_bytes(page.picture())
        page.open(f"file://{place}?small")
        assert page.waited(lambda facts: facts.get("step") == "20")["own"] == "1"


@pytest.mark.slow
def test_the_site_is_built_strictly(tmp_path: Path) -> None:
    """`make docs`, if mkdocs is installed: links, anchors and docstrings."""
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    pytest.importorskip("material")
    argv = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(tmp_path / "site")]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    index = (tmp_path / "site" / "index.html").read_text()
    assert site_module.MARK not in index
    made = (tmp_path / "site" / site_module.NAME).exists()
    assert made == (not site_module.missing()) == (f"{site_module.NAME}?small" in index)


def test_the_five_lines_beside_those_of_keras_are_those_that_run() -> None:
    text = PAGES["coming.md"].read_text().partition("## Keras\n")[2]
    rows = re.findall(r"^\| `(.*)` \| `(.*)` \|$", text.partition("```")[0], re.M)
    (code,) = BLOCK.findall(text)[:1]
    assert len(rows) == 5 and [here for _, here in rows] == code[1].splitlines()[-5:]
