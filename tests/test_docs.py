"""Commands on the pages are understood, names and links lead somewhere, and README prints what its commands print."""

from __future__ import annotations

import argparse
import ast
import functools
import importlib
import importlib.util
import json
import os
import pkgutil
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from PIL import Image

import kernels
import refimpl
from refimpl import cli
from refimpl.cli.demonstration import plan_vgg16
from refimpl.cli.parser import Fail
from refimpl.names.largest_batch import unlimited_baseline
from refimpl.names.presets import PAPERS

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")} - {*(ROOT / "docs" / "_generated").rglob("*.md")})
PAGES = [page for page in PAGES if "_build" not in page.parts]
NOTEBOOKS = sorted((ROOT / "tutorials").glob("*.ipynb"))


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@functools.cache
def script(name: str) -> ModuleType:
    """A script of the documentation's."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fences(page: Path, *languages: str) -> list[str]:
    """The blocks of code in these languages, in order."""
    found = re.findall(r"^```(\S*)[^\n]*\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [text for language, text in found if language in languages]


# -- commands ----------------------------------------------------------------------------------------------------------


def commands(page: Path) -> list[str]:
    """Whole lines that call the command, and calls within a line that have nothing left out."""
    text = page.read_text(encoding="utf-8")
    lines = re.findall(r"^(?: {4})?(?:\.venv/bin/)?(refimpl [a-z-]+(?![\w:])[^\n#`]*)", text, re.MULTILINE)
    within = [found for found in re.findall(r"`(refimpl [a-z][^`\n]*)`", text) if "…" not in found]
    return [line.strip() for line in (*lines, *within)]


CAPITALS = {"NETWORK": "vgg16", "FILE": "some.file", "NAME": "titan-x", "COMMAND": "plan", "PAPER": "superneurons"}


@functools.cache
def parser_of(command: str) -> argparse.ArgumentParser:
    return cli.parser([command])


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=name)
def test_commands_are_understood(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in commands(page):
        words = [CAPITALS.get(word, word) for word in shlex.split(command)[1:]]
        if words[-1] in ("--help", "--version"):
            words = words[:-1]
        words = cli.of_one_word(words)
        if words[0] in ("bench", "list") or len(words) > 1:  # a command's name alone stands for the command
            options = parser_of(words[0]).parse_args(words)  # leaves with status 2, and says why, if it is wrong
            assert options.run, command
        else:
            assert words[0] in cli.COMMANDS


def test_a_wrong_command_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "    refimpl plan vgg16 --budgget 12GiB  # comment\nand `refimpl list` and `refimpl plan … --json`\n"
    )
    assert commands(page) == ["refimpl plan vgg16 --budgget 12GiB", "refimpl list"]
    with pytest.raises(Fail, match="--budgget"):
        test_commands_are_understood(page, None)  # type: ignore[arg-type]


# -- imports -----------------------------------------------------------------------------------------------------------


def code_of(page: Path) -> str:
    """All Python that a page or a notebook shows, as one module."""
    if page.suffix == ".ipynb":
        found = json.loads(page.read_text(encoding="utf-8"))["cells"]
        return "\n".join("".join(cell["source"]) for cell in found if cell["cell_type"] == "code")
    text = page.read_text(encoding="utf-8")
    runs = [found["code"] for found in script("readme").RUN.finditer(text)]
    return "\n".join([*runs, *(text for text in fences(page, "python") if text not in runs and "import" in text)])


@functools.cache
def public_names(module: str) -> frozenset[str]:
    """The names that a reader may use of a module.  Empty for a module that is not public itself.

    Public are `refimpl` and what `dir(refimpl)` lists, `kernels` and its rooms, the other packages below, and the
    files that one of these packages names in its `__all__`; all of them where it has none.
    """
    if module == "refimpl":
        return frozenset({*dir(refimpl), "cli", "executor", "names", "parallel", "streams", "studies", "text", "torch"})
    if module == "kernels":
        return frozenset(found.name for found in pkgutil.iter_modules(kernels.__path__))
    package, _, last = module.rpartition(".")
    if last not in public_names(package or "refimpl"):
        return frozenset()
    found = importlib.import_module(module)
    own = {name for name, value in vars(found).items() if name[0] != "_" and not isinstance(value, ModuleType)}
    within = getattr(found, "__path__", ())
    files = {file.name for file in pkgutil.iter_modules(within)}
    return frozenset(getattr(found, "__all__", own | files))


def not_public(code: str) -> list[str]:
    """The names that the code takes from `refimpl` and `kernels` and that are not public."""
    wanted = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom):
            wanted += [(node.module or "", alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            wanted += [(name.name.rpartition(".")[0], name.name.rpartition(".")[2]) for name in node.names]
        elif isinstance(node, ast.Attribute):  # refimpl.superneurons.Heap
            module, _, name = ast.unparse(node).rpartition(".")
            if module == "refimpl" or module.removeprefix("refimpl.") in refimpl.ROOMS:
                wanted.append((module, name))
    ours = [(module, name) for module, name in wanted if module.partition(".")[0] in ("refimpl", "kernels")]
    return [f"{module}.{name}" for module, name in ours if name not in public_names(module)]


WITH_CODE = [page for page in (*PAGES, *NOTEBOOKS) if code_of(page)]


@pytest.mark.parametrize("page", [*WITH_CODE, ROOT / "docs" / "slots" / "examples.py"], ids=name)
def test_readers_need_public_names_only(page: Path) -> None:
    if "from refimpl.torch import" in code_of(page):
        pytest.importorskip("torch", reason="PyTorch is not installed: refimpl.torch cannot be imported")
    code = page.read_text(encoding="utf-8") if page.suffix == ".py" else code_of(page)
    assert not_public(code) == [], "import it from its room, and name it in the room's __all__ if it is missing there"


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("from refimpl.slots.baseline import LayerWise", ["refimpl.slots.baseline.LayerWise"]),
        ("import refimpl.planner.loop", ["refimpl.planner.loop"]),
        ("from kernels.targets.compiled import load", ["kernels.targets.compiled.load"]),
        ("refimpl.vdnnpp.pool_search.trace(program)", ["refimpl.vdnnpp.pool_search"]),
        ("from refimpl.memory import FirstFit, NoFit", ["refimpl.memory.NoFit"]),
        ("from refimpl.memory import FirstFit\nfrom refimpl.report.style import save\nrefimpl.plan(a.b)", []),
    ],
)
def test_a_name_that_is_not_public_is_found(code: str, found: list[str]) -> None:
    assert not_public(code) == found


# -- links -------------------------------------------------------------------------------------------------------------

COURSE = ROOT / "tutorials" / "README.md"
HANDOUTS = sorted((ROOT / "tutorials" / "handouts").glob("*.md"))
DECKS = sorted((ROOT / "tutorials" / "decks").glob("*.md"))
FOR_LECTURERS = sorted((ROOT / "tutorials" / "solutions").glob("*.md"))
SITE = ROOT / "docs" / "index.md"  #: the front page of the site, which GitHub never shows
OF_THE_SITE = ("_generated/", "vgg16.html")  #: what its build makes, and checks


@functools.cache
def prose(path: Path) -> str:
    """The text of a page or a notebook, without its code and its comments."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        text = "\n\n".join(
            "".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"
        )
    text = re.sub(r"^(`{3,}).*?^\1`*$|<!--.*?-->", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"(`+)(?!`)[^\n]+?\1", "", text)


def links(text: str) -> list[str]:
    """Where prose links to in the repository: `folder/file.md#heading`."""
    found = re.findall(r"\]\(([^)\s]+)|(?:href|src)=[\"']([^\"']+)", text)
    return [one or other for one, other in found if not re.match(r"(https?|mailto|attachment):", one or other)]


@functools.cache
def anchors(page: Path) -> set[str]:
    """The names that GitHub gives the headings of a page."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    heads = [re.sub(r"\[(.*?)\]\(.*?\)", r"\1", head) for head in re.findall(r"^#+ +(.*)$", text, re.MULTILINE)]
    return {re.sub(r"[^\w\- ]", "", head.strip().lower()).replace(" ", "-") for head in heads}


def broken(page: Path, text: str) -> list[str]:
    """The links of a page that lead nowhere."""
    found = []
    for target in links(text):
        path, _, heading = target.partition("#")
        place = page.parent / path if path else page
        if page == SITE and path.startswith(OF_THE_SITE):
            continue
        if not place.exists() or (heading and place.suffix == ".md" and heading not in anchors(place)):
            found.append(target)
    return found


def test_links_lead_somewhere() -> None:
    wrong = {
        name(page): found
        for page in (*PAGES, COURSE, *HANDOUTS, *FOR_LECTURERS, *NOTEBOOKS)
        if (found := broken(page, prose(page)))
    }
    assert wrong == {}


def test_a_broken_link_is_found() -> None:
    text = "[a](README.md) [b](READ.md) ![c](docs/d.png) [e](docs/tour.md#no-such) [f](#the-papers) <a href='g.md'>"
    assert broken(ROOT / "README.md", text) == [
        "READ.md",
        "docs/d.png",
        "docs/tour.md#no-such",
        "g.md",
    ]


#: What only Sphinx understands, or GitHub shows otherwise than it is meant.
NOT_ON_GITHUB = {
    "a directive": r"^(?:`{3,}|:{3,}) *\{",
    "a role": r"\{[\w:]+\}`",
    "a link without a text": r"(?<!!)\[\]\(",
    "HTML": r"^ *</?\w+[ >]",
    "front matter": r"\A---\n",
    "a comment of MyST's": r"^% ",
}


def not_on_github(text: str) -> list[str]:
    return [what for what, pattern in NOT_ON_GITHUB.items() if re.search(pattern, text, re.MULTILINE)]


def test_pages_that_are_linked_read_on_github() -> None:
    """Those one link away from README, a notebook or a handout; so do all others but the site's front page."""
    starts = [(page, links(prose(page))) for page in (ROOT / "README.md", COURSE, *HANDOUTS, *NOTEBOOKS)]
    reached = {(page.parent / target.partition("#")[0]).resolve() for page, targets in starts for target in targets}
    reached = {path for path in reached if path.suffix == ".md"}
    assert len(reached) > 20 and SITE not in reached and ROOT / "docs" / "backends.md" in reached
    assert reached <= {*PAGES, COURSE, *HANDOUTS, *DECKS}
    on_the_site = re.compile(r"<!--.*?-->", re.DOTALL)
    texts = {
        name(page): on_the_site.sub("", page.read_text(encoding="utf-8"))
        for page in (*PAGES, *HANDOUTS)
        if page != SITE
    }
    assert {page: found for page, text in texts.items() if (found := not_on_github(text))} == {}


def test_what_github_does_not_show_is_found() -> None:
    lines = (
        "```{code-cell}",
        "see {doc}`tour`",
        "[](tour.md)",
        "<div align=right>",
        "% raw",
    )
    assert [not_on_github(f"# Page\n\n{line}\n") for line in lines] == [
        ["a directive"], ["a role"], ["a link without a text"], ["HTML"], ["a comment of MyST's"],
    ]  # fmt: skip
    assert not_on_github("---\nkernelspec:\n---\n# Page\n") == ["front matter"]
    assert (
        not_on_github("# Page\n\n[a tour](tour.md), `x<y>`, ![a picture](a.png)\n\n```python run\nprint(1)\n```\n")
        == []
    )


def test_the_sites_copies_show_code_and_lead_to_copies() -> None:
    generate = script("generate")
    for page in PAGES:
        generate.for_the_site(
            page.read_text(encoding="utf-8"), page
        )  # every name is found in the file that a link names
    text = "[`LastConsumerSends.steps` in a](../refimpl/slots/last_consumer.py)\n<!-- on the site: <b>more</b> -->\n"
    (name,) = re.findall(r"    def (\w+)", (ROOT / "refimpl/slots/last_consumer.py").read_text("utf-8"))[-1:]
    shown = generate.for_the_site(text.replace("steps", name), ROOT / "docs" / "page.md")
    assert f"\n\n```python\ndef {name}(" in shown and "\n<b>more</b>\n" in shown
    moved = "[a](../tutorials/handouts/a1.md) [b](../tutorials/quiz.ipynb#x) [c](../tutorials/course.py)"
    assert generate.for_the_site(moved, ROOT / "docs" / "page.md") == (
        "[a](/_generated/tutorials/handouts/a1.md) [b](/_generated/tutorials/quiz.ipynb#x) [c](../tutorials/course.py)"
    )
    assert generate.tutorial("[a](../docs/tour.md) [b](../refimpl/x.py) [c](labs/a2_waits.py) [d](handouts/a2.md)") == (
        "[a](../../tour.md) [b](../../../refimpl/x.py) [c](../../../tutorials/labs/a2_waits.py) [d](handouts/a2.md)"
    )
    assert generate.tutorial(
        "[a](../../docs/tour.md#x) [b](../labs/x.py) [c](../03_vdnn.ipynb) [d](a2.md)", "tutorials/handouts"
    ) == ("[a](../../../tour.md#x) [b](../../../../tutorials/labs/x.py) [c](../03_vdnn.ipynb) [d](a2.md)")


def named_files(page: Path) -> list[str]:
    """Every file and folder of the project that a page names."""
    text = page.read_text(encoding="utf-8")
    return re.findall(r"`((?:docs|kernels|refimpl|tests|tutorials)/[\w/]*(?:\.\w+)?)`", text)


@pytest.mark.parametrize("page", [page for page in PAGES if named_files(page)], ids=name)
def test_files_that_are_named_are_there(page: Path) -> None:
    for path in named_files(page):
        assert (ROOT / path).exists(), f"{page.name} names {path}, which is not there"


@functools.cache
def known_tests() -> set[str]:
    files = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "tutorials").rglob("*.py")]
    return {found for file in files for found in re.findall(r"\bdef (test_\w+)", file.read_text(encoding="utf-8"))}


def test_tests_that_are_named_are_there() -> None:
    for page in PAGES:
        for found in re.findall(r"`(?:[\w/]+\.py::)?(test(?:_[a-z0-9]+){3,})`", page.read_text(encoding="utf-8")):
            assert found in known_tests(), f"{page.name} names {found}, and there is no such test"


# -- the README --------------------------------------------------------------------------------------------------------


def too_long(text: str) -> list[str]:
    """Lines that a reader of the file has to scroll for; a table that the bench writes is as wide as it is."""
    own = re.sub(r"<!-- begin (.*?) -->.*?<!-- end \1 -->", lambda found: re.sub(r"(?m)^\|.*$", "", found[0]), text,
                 flags=re.DOTALL)  # fmt: skip
    return [line for line in own.splitlines() if len(line) >= 140]


def test_the_readme_is_short() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150 and too_long(text) == []


def test_the_page_on_what_fits_shows_its_file() -> None:
    (shown,) = fences(ROOT / "docs" / "will-it-fit.md", "python")
    own = (ROOT / "docs" / "_static" / "my_file.py").read_text(encoding="utf-8")
    assert shown.partition("# my_file.py\n")[2].strip() == own.strip()


@pytest.mark.slow
def test_the_readme_prints_what_the_commands_print() -> None:
    readme = script("readme")
    readme.printed = functools.cache(readme.printed)  # type: ignore[attr-defined]
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme.BLOCK.search(text) and "docs/_static/mine.py:Mine" in text
    assert readme.rewritten(text) == text, "run: python docs/readme.py"
    assert readme.rewritten(text.replace("10.88 GiB", "10.87 GiB")) == text
    assert "superneurons`: 11,777 MiB" in (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
    said = readme.printed("refimpl plan vgg16 --batch 256 --machine titan-x --budget 12GiB --policy superneurons")
    assert "11777MiB" in said


def test_the_tables_of_the_pages_are_current(monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the networks', which takes seconds to build them, and the path's, in which every line of code counts."""
    readme = script("readme")
    tables = {table: make for table, make in readme.TABLES.items() if table not in ("networks", "reading-path")}
    monkeypatch.setattr(readme, "TABLES", tables)
    stale = [name(page) for page in readme.pages() if readme.with_tables(text := page.read_text("utf-8")) != text]
    assert stale == [], "run: python docs/readme.py"
    page = ROOT / "docs" / "slots" / "index.md"
    assert readme.with_tables(page.read_text("utf-8").replace("| `offload` |", "| `offlaod` |")) == page.read_text(
        "utf-8"
    )


def test_the_drawings_are_current() -> None:
    for file, drawing in script("drawings").drawings(ROOT).items():
        there = (ROOT / "docs" / "pictures" / file).read_text(encoding="utf-8")
        assert there == drawing, "run: python docs/drawings.py"


@pytest.mark.slow
@pytest.mark.matrix
@pytest.mark.parametrize("page", [page for page in script("readme").pages() if page != ROOT / "README.md"], ids=name)
def test_a_page_shows_what_its_commands_and_blocks_print(page: Path, tmp_path: Path) -> None:
    """In a copy of docs/, as a page draws its pictures, too."""
    if "import torch" in page.read_text("utf-8") or "refimpl torch " in page.read_text("utf-8"):
        pytest.importorskip("torch", reason="PyTorch is not installed: the page is about it")
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("_build", "_generated"))
    for other in ("refimpl", "kernels", "tutorials", "README.md", "setup.py"):
        (tmp_path / other).symlink_to(ROOT / other)
    copy = tmp_path / page.relative_to(ROOT)
    with_us = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(
        [sys.executable, str(tmp_path / "docs" / "readme.py"), str(copy)], check=True, cwd=tmp_path, env=with_us
    )
    assert copy.read_text("utf-8") == page.read_text("utf-8"), f"run: python docs/readme.py {name(page)}"


def slow_downs() -> dict[str, str]:
    """Paper → how many times as long an iteration of VGG-16 in 12 GiB takes, by README's table."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"(?m)^\| \[([^]]+)\].*\| yes.* \| (\d\.\d\d) × \|$", readme)
    return {"combined" if paper == "all together" else paper: slower for paper, slower in rows}


def test_the_readmes_table_the_pictures_and_the_tour_agree() -> None:
    """On what each paper takes for VGG-16 in 12 GiB, to the last digit of each."""
    tour = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
    of_every_paper = tour.partition("--budget 12GiB --spread\n")[2]
    table = dict(re.findall(r"(?m)^(\S+) .* s  (\d\.\d\d) ×  ", of_every_paper))
    assert ["baseline", *table] == [*PAPERS] and table == slow_downs()
    drawn = Image.open(ROOT / "docs" / "pictures" / "pareto-vgg16.png").info["Description"].splitlines()
    (head,), (line,) = (
        [line for line in drawn if line.split()[:2] == two] for two in (["budget", "baseline"], ["12", "GiB"])
    )
    picture = dict(zip(head.split()[1:], line.split()[2:], strict=True))  # after "12 GiB"
    assert {paper: f"{float(picture[paper]):.2f}" for paper in table} == table
    of_vdnn = tour.partition("--budget 12GiB --policy vdnn-dyn\n")[2].partition("```")[0]
    assert re.findall(r"iteration .* (\d\.\d\d) × the baseline's", of_vdnn) == [table["vDNN"]]


#: Of each paper the setup that is its row in README's table; `make matrix` runs the demo's search for the best one.
BEST = {
    "vDNN": "vdnn-dyn",
    "vDNN++": "vdnnpp-all prefetch=vdnnpp-window-no-pool algorithms=fastest-that-fits pinned=vdnnpp-on-demand",
    "SuperNeurons": "superneurons-offload",
    "AccUDNN": "accudnn",
}


def test_the_readmes_table_is_planned() -> None:
    network, machine = refimpl.networks.vgg16(batch=256), refimpl.machines.titan_x
    unlimited = unlimited_baseline(network, machine).planned_seconds
    for paper, setup in BEST.items():
        seconds = refimpl.plan(network, setup, machine, "12GiB").planned_seconds
        assert f"{seconds / unlimited:.2f}" == slow_downs()[paper], paper


@pytest.mark.slow
@pytest.mark.matrix
def test_the_readmes_table_is_what_the_demo_prints(capsys: pytest.CaptureFixture[str]) -> None:
    plan_vgg16()
    demo, readme = capsys.readouterr().out, (ROOT / "README.md").read_text(encoding="utf-8")
    assert dict(re.findall(r"(?m)^(\S+) .* (\d\.\d\d) × ", demo)) == slow_downs()
    assert re.findall(r"needs at least ([\d.]+ GiB)", readme) == re.findall(r"least budget is ([\d.]+ GiB)", demo)


@pytest.mark.matrix
def test_what_a_decoder_holds_is_what_others_measured_on_a_gpu() -> None:
    pytest.importorskip("torch")
    rivals = script("rivals")
    rows = {row[0]: row[1:3] for row in rivals.resident_rows() if row[0].startswith("8 ×")}
    assert len(rows) == 2 and all(theirs == ours for theirs, ours in rows.values())
    page = (ROOT / "docs" / "related.md").read_text(encoding="utf-8")
    assert all(f"| {asked} | {theirs} | {ours} |" in page for asked, (theirs, ours) in rows.items())


@pytest.mark.slow
def test_the_page_about_a_module_of_ones_own_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Followed as written: the file is saved, and every command below it runs."""
    page = ROOT / "docs" / "slots" / "index.md"
    (module,) = fences(page, "python")
    (tmp_path / "my_modules.py").write_text(module)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_modules", raising=False)
    calls = [line for line in commands(page) if "my_modules:BigMaps" in line]
    assert [call.split()[1] for call in calls] == ["plan", "plan", "view", "run"]
    for call in calls:
        assert cli.main(shlex.split(call)[1:]) == 0
    assert (tmp_path / "my.html").stat().st_size > 10_000


@pytest.mark.slow
def test_the_readmes_python_trains(digits: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (snippet,) = [text for text in fences(ROOT / "README.md", "python") if "Trainer" in text]
    exec(compile(snippet, "README.md", "exec"), {"__name__": "readme"})
    assert float(capsys.readouterr().out.splitlines()[-1]) > 0.9
