"""What the documentation and the README show is what happens: every command is understood, every snippet runs."""

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
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, get_args
from xml.etree import ElementTree

import pytest

import kernels
import refimpl
from refimpl import cli
from refimpl.cli.parser import Fail
from refimpl.names.modules import SWITCHES
from refimpl.planner import SLOTS, Codec, HostCopy
from refimpl.planner.instructions import Instruction
from refimpl.studies.reproduce import PAPERS
from tests.refimpl.backend.processes import mpiexec, needs_mpi

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")} - {*(ROOT / "docs" / "_generated").rglob("*.md")})
PAGES = [page for page in PAGES if "_build" not in page.parts]


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


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


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=name)
def test_commands_are_understood(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in commands(page):
        words = [CAPITALS.get(word, word) for word in shlex.split(command)[1:]]
        if words[-1] in ("--help", "--version"):
            words = words[:-1]
        if words[0] in ("bench", "list") or len(words) > 1:  # a command's name alone stands for the command
            options = cli.parser().parse_args(words)  # leaves with status 2, and says why, if it is wrong
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


# -- snippets ----------------------------------------------------------------------------------------------------------


def cells(page: Path) -> list[str]:
    """The cells, without their options.  `make docs` runs them: the build fails where one does."""
    return [re.sub(r"^:.*\n", "", text, flags=re.MULTILINE) for text in fences(page, "{code-cell}")]


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent == ROOT], ids=name)
def test_pythons_snippets_compile(page: Path) -> None:
    for snippet in fences(page, "python"):
        compile(snippet, name(page), "exec")


def shape_of(line: str) -> str:
    """A line of output without what depends on the machine: memory and times, the last digits of a loss."""
    label = line.split(" ")[0]
    measured = {"Memory": r"[\d.]+ [KM]iB(?=, as recounted)", "Time": ".*", "Loss": ".*", "Accuracy": r"[\d.]+%"}
    measured |= {"Chosen": "(?<=calls: ).*", "Process": r"[\d.]+ [MG]iB"}
    return re.sub(measured.get(label, "(?!)"), "…", line)


@needs_mpi
@pytest.mark.slow
def test_the_sample_of_two_ranks_is_what_they_print() -> None:
    page = ROOT / "docs" / "data-parallel.md"
    sample = next(text for text in fences(page, "text") if "on each of 2 ranks" in text)
    (command,) = (line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("    mpiexec -n 2"))
    done = mpiexec(["-m", *shlex.split(command)[3:]])
    assert done.returncode == 0, done.stderr
    assert [*map(shape_of, done.stdout.splitlines())] == [*map(shape_of, sample.splitlines())]


# -- imports -----------------------------------------------------------------------------------------------------------


def code_of(page: Path) -> str:
    """All Python that a page or a notebook shows, as one module."""
    if page.suffix == ".ipynb":
        found = json.loads(page.read_text(encoding="utf-8"))["cells"]
        return "\n".join("".join(cell["source"]) for cell in found if cell["cell_type"] == "code")
    return "\n".join([*cells(page), *(text for text in fences(page, "python") if "import" in text)])


@functools.cache
def public_names(module: str) -> frozenset[str]:
    """The names that a reader may use of a module.  Empty for a module that is not public itself.

    Public are `refimpl` and what `dir(refimpl)` lists, `kernels` and its rooms, the other packages below, and the
    files that one of these packages names in its `__all__`; all of them where it has none.
    """
    if module == "refimpl":
        return frozenset({*dir(refimpl), "cli", "executor", "names", "parallel", "studies", "text", "torch"})
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


WITH_CODE = [page for page in (*PAGES, *sorted((ROOT / "tutorials").glob("*.ipynb"))) if code_of(page)]


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


# -- what every page must have -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("slot", SLOTS)
def test_every_slot_has_a_page(slot: str) -> None:
    """With its protocol, its modules and an example; `docs/slots/index.md` leads to it."""
    text = (ROOT / "docs" / "slots" / f"{slot}.md").read_text(encoding="utf-8")
    assert "{literalinclude}" in text and f"_generated/slots/{slot}.md" in text and "{code-cell}" in text
    assert f"<{slot}>" in (ROOT / "docs" / "slots" / "index.md").read_text(encoding="utf-8")
    for module, quoted in re.findall(r"\{literalinclude\} (\S+)\n:pyobject: (\w+)", text):
        source = (ROOT / "docs" / "slots" / module).read_text(encoding="utf-8")
        assert re.search(rf"^class {quoted}\b", source, re.MULTILINE), f"{module} has no class {quoted}"


def test_the_pages_on_slots_name_what_a_first_module_needs() -> None:
    """Helpers of `refimpl.slots`, and questions to the machine: all that the pages name is there."""
    texts = [page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "slots").glob("*.md")]
    helpers = {name for text in texts for name in re.findall(r"`slots\.(\w+)", text)}
    asked = {name for text in texts for name in re.findall(r"`context\.machine\.(\w+)\(", text)}
    assert {"Departures", "LastConsumerSends", "Window"} <= helpers <= {*refimpl.slots.__all__}
    assert {"copy_seconds", "seconds", "choices"} <= asked <= {*dir(refimpl.machine.Machine)}


def rows_of(page: str) -> set[str]:
    """The first cells of the rows of a page's tables: words with a comma between them each for itself."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return {word.strip(" `") for cell in re.findall(r"^\| ([^|]+) \|", text, re.MULTILINE) for word in cell.split(",")}


def test_what_a_setup_fixes_beside_its_slots_is_told() -> None:
    assert {f"--set {name}=" for name in SWITCHES} <= rows_of("slots/index.md")


def test_every_instruction_is_told() -> None:
    kinds = [kind for one in get_args(Instruction) for kind in one.__subclasses__() or [one]]
    words = {kind.op for kind in kinds if not issubclass(kind, HostCopy)}
    words |= {
        word
        for codec in Codec.__subclasses__()
        if codec.__module__.startswith("refimpl.")
        for word in (codec.packs, codec.unpacks)
    }
    assert {"copy out", "decompress", "wait"} <= words <= rows_of("program.md")


LONGEST = 200  #: lines of a page that explains a paper


def lacks_as_explanation(text: str) -> list[str]:
    """What the page that explains a paper should have and has not: it is short, and what was found is elsewhere."""
    lines = text.splitlines()
    parts = {"a picture": "Image(", "an algorithm": "{literalinclude} ../refimpl/", "its modules": "\n## The modules\n"}
    found = [part for part, sign in parts.items() if sign not in text]
    found += [f"at most {LONGEST} lines"] if len(lines) > LONGEST else []
    elsewhere = re.compile(r"#+ (?:Published|Reconstructions|Pitfalls|On a GPU|Beside)")
    return found + [line for line in lines if elsewhere.match(line)]


def test_what_the_page_of_a_paper_lacks() -> None:
    page = "```{literalinclude} ../refimpl/a.py\nImage(\n## The modules\n"
    assert lacks_as_explanation(page) == []
    assert lacks_as_explanation(page + "\n" * LONGEST + "## Pitfalls\n") == ["at most 200 lines", "## Pitfalls"]
    assert lacks_as_explanation("") == ["a picture", "an algorithm", "its modules"]


@pytest.mark.parametrize("paper", PAPERS)
def test_every_paper_has_a_page(paper: str) -> None:
    """What it is and how it works, where the index, the README and the reference lead to; the evidence beside it."""
    pages = [(ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in (paper, f"{paper}-evidence")]
    assert lacks_as_explanation(pages[0]) == [] and f"({paper}-evidence.md" in pages[0] and f"({paper}.md)" in pages[1]
    index, readme = (path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "index.md", ROOT / "README.md"))
    assert f"\n{paper}\n{paper}-evidence\n" in index
    assert f"(docs/{paper}.md)" in readme and f"(refimpl/{paper})" in readme and f"| `reproduce {paper}` |" in readme
    names, about = script("reference").ROOMS["papers"]
    assert f"refimpl.{paper}" in names and f"/{paper}.md" in about


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_the_rooms_are_listed_on_one_page(page: str) -> None:
    """The architecture page, which draws them; the others link to it, and to the folders of the papers."""
    text = (ROOT / page).read_text(encoding="utf-8")
    rooms = {Path(folder).name for folder in re.findall(r"\]\(((?:refimpl|kernels)[\w/]*)\)", text)}
    assert "(docs/architecture.md#the-rooms)" in text and rooms <= {*PAPERS, "combined"}


def test_the_architecture_page_has_no_campaigns() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert "_generated/house.svg" in text and "campaign" not in text and "(combined.md#" in text


# -- what is here of the papers ----------------------------------------------------------------------------------------


class Claim(NamedTuple):
    """A row of the page on fidelity."""

    what: str
    here: str  #: yes, partly or no
    where: str
    shown: str
    note: str


def claims() -> dict[str, list[Claim]]:
    """Paper → its rows."""
    text = (ROOT / "docs" / "fidelity.md").read_text(encoding="utf-8")
    chapters = re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return {paper: [Claim(*(cell.strip() for cell in line.strip("|").split("|")))
                    for line in body.splitlines() if line.startswith("| ") and "| --- |" not in line][1:]
            for paper, body in chapters}  # fmt: skip


def lacks(claim: Claim) -> list[str]:
    """The parts that a row should have and has not."""
    found = [] if claim.what else ["what"]
    if claim.here not in ("yes", "partly", "no"):
        found.append("yes, partly or no")
    if claim.here != "no":
        found += [] if re.search(r"\]\(\.\./refimpl/|`tutorials/", claim.where) else ["where"]
        found += [] if re.search(r"`(?:refimpl |tests/)[^`]+`", claim.shown) else ["a command or a test"]
    return found + (["why not"] if claim.here != "yes" and not claim.note else [])


def test_the_page_on_fidelity_has_every_paper() -> None:
    assert list(claims()) == [*(paper.title for paper in PAPERS.values()), "combined and the optimum"]
    assert "\nfidelity\n" in (ROOT / "docs" / "index.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("paper", claims())
def test_the_rows_on_fidelity_are_whole(paper: str) -> None:
    rows = claims()[paper]
    assert len(rows) > 5 and len({row.what for row in rows}) == len(rows)
    assert {row.what: lacks(row) for row in rows if lacks(row)} == {}


@pytest.mark.parametrize(
    ("claim", "found"),
    [
        (Claim("join", "yes", "[a](../refimpl/a.py)", "`refimpl plan vgg16`", ""), []),
        (Claim("join", "partly", "`tutorials/a.ipynb`", "`tests/a.py`", "why"), []),
        (Claim("join", "no", "", "", "why"), []),
        (Claim("join", "no", "", "", ""), ["why not"]),
        (Claim("join", "mostly", "[a](../refimpl/a.py)", "`tests/a.py`", "why"), ["yes, partly or no"]),
        (Claim("join", "partly", "a.py", "a test", ""), ["where", "a command or a test", "why not"]),
    ],
)
def test_what_a_row_on_fidelity_lacks(claim: Claim, found: list[str]) -> None:
    assert lacks(claim) == found


#: Commands that plan and measure nothing, and so take a second or two.
QUICK = ("plan", "compare", "list", "summary", "fragmentation")


@pytest.mark.slow
def test_the_quick_commands_on_fidelity_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    found = [shlex.split(command)[1:] for command in commands(ROOT / "docs" / "fidelity.md")]
    quick = [words for words in found if words[0] in QUICK and "combined" not in words]  # that searches for seconds
    assert len(quick) > 10
    for words in quick:
        assert cli.main(words) == 0, words
    capsys.readouterr()


#: Papers that are to be built: name → as on the command line.
TO_COME = {"AccUDNN": "accudnn"}


def promises(text: str) -> list[str]:
    """Sentences that name a paper as if it were here and is not, or as if it were to come and is here."""
    sentences = re.split(r"(?<=\.)\s+|\n\n", text)
    return [
        sentence
        for paper, name in TO_COME.items()
        for sentence in sentences
        if paper in sentence and (re.search(r"to\s+come|not\s+there", sentence) is None) != (name in PAPERS)
    ]


@pytest.mark.parametrize(
    "path",
    [*PAGES, ROOT / "setup.py", *(ROOT / "refimpl" / name for name in ("__init__.py", "cli/__init__.py"))],
    ids=name,
)
def test_no_paper_is_promised(path: Path) -> None:
    assert promises(path.read_text(encoding="utf-8")) == []


def test_a_promise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TO_COME, "vDNN", "vdnn")
    monkeypatch.setitem(TO_COME, "Tomorrow", "tomorrow")
    text = "vDNN is here. vDNN is to come. We have Tomorrow. Tomorrow is\nto\ncome."
    assert promises(text) == ["vDNN is to come.", "We have Tomorrow."]


# -- links -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent == ROOT], ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
        if not target.startswith(("http:", "https:", "mailto:")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there"


def anchors(page: Path) -> set[str]:
    """The names of a page's headings in links."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_to_headings_lead_to_one(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([\w./-]*)#([^)\s]+)\)", page.read_text(encoding="utf-8")):
        found = (page.parent / target).resolve() if target else page
        if found.suffix == ".md" and "_generated" not in found.parts:
            assert anchor in anchors(found), f"{name(page)} links to {target}#{anchor}, which is not there"


def named_files(page: Path) -> list[str]:
    """Every file and folder of the project that a page names or links to."""
    text = page.read_text(encoding="utf-8")
    found = re.findall(r"`((?:docs|kernels|refimpl|tests|tutorials)/[\w/]*(?:\.\w+)?)`", text)
    return found + re.findall(r"\]\((?:\.\./)+((?:kernels|refimpl|tests)/[^)#\s]+)", text)


@pytest.mark.parametrize("page", [page for page in PAGES if named_files(page)], ids=name)
def test_files_that_are_named_are_there(page: Path) -> None:
    for path in named_files(page):
        assert (ROOT / path).exists(), f"{page.name} names {path}, which is not there"


def named_tests(page: Path) -> list[tuple[str, str]]:
    """Every file of tests that a page names, with the test where it names one."""
    return re.findall(r"\b(tests/[\w/]+\.py)(?:::(\w+))?", page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", [page for page in PAGES if named_tests(page)], ids=name)
def test_tests_that_are_named_are_there(page: Path) -> None:
    for path, test in named_tests(page):
        assert (ROOT / path).is_file(), f"{page.name} names {path}, which is not there"
        if test:
            source = (ROOT / path).read_text(encoding="utf-8")
            assert re.search(rf"^def {test}\(", source, re.MULTILINE), f"{path} has no {test}"


GENERATED = re.compile(r"^```\{(?:code-cell|include|literalinclude|raw)\}", re.MULTILINE)


@pytest.mark.parametrize("page", [page for page in PAGES if GENERATED.search(page.read_text("utf-8"))], ids=name)
def test_a_page_with_generated_parts_says_how_to_see_it_whole(page: Path) -> None:
    """For who reads it raw, on a Git host: in a comment, which the built page does not show."""
    built = page.relative_to(ROOT / "docs").with_suffix(".html")
    (note,) = re.findall(r"^# [^\n]+\n\n(% [^\n]+)\n\n", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert note.endswith(f"`make docs` builds it whole, docs/_build/html/{built}")


# -- pages that are made -----------------------------------------------------------------------------------------------


def options_of(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """Every command and every option of it, from the command's own parser."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for one in action.choices.values():
                yield from options_of(one)
        elif action.help != argparse.SUPPRESS and action.dest != "help":
            yield from ((parser.prog, option) for option in action.option_strings)


def test_the_commands_page_has_every_option() -> None:
    page = script("commands").command_page(cli.parser())
    chapters = dict(re.findall(r"^##+ (refimpl [\w -]+)\n(.*?)(?=^##+ |\Z)", page, re.MULTILINE | re.DOTALL))
    found = [(prog, option) for prog, option in options_of(cli.parser()) if prog != "refimpl"]
    assert len(found) > 50
    for prog, option in found:
        assert f"`{option}" in chapters[prog], f"{prog} {option}"


def test_the_house_has_every_room() -> None:
    drawings = script("drawings")
    storeys = drawings.storeys(ROOT / "tests" / "test_layout.py")
    assert [room for rooms in storeys.values() for room in rooms] == list(drawings.PURPOSE)
    house, flow = drawings.house(ROOT), drawings.flow()
    for picture in (house, flow):
        ElementTree.fromstring(picture)
    assert all(f">{room.removeprefix('refimpl.')}</text>" in house for room in drawings.PURPOSE)


@pytest.mark.slow
def test_the_reference_has_every_room() -> None:
    """A page for each room, with every file of it and links to the names that it offers."""
    reference = script("reference")
    documented = {name for names, _ in reference.ROOMS.values() for name in names}
    drawn = {room for room in script("drawings").PURPOSE if not room.startswith("kernels.")}
    drawn |= {f"refimpl.studies.{found.name}" for found in pkgutil.iter_modules([str(ROOT / "refimpl" / "studies")])}
    built = {room for room in drawn - {"refimpl.studies"} if (ROOT / room.replace(".", "/")).is_dir()}
    assert built - documented == {"refimpl.cli"}  # it has the page of the command
    page = reference.room_page("memory")
    for text in (
        ".. automodule:: refimpl.memory\n",
        "## refimpl.memory.fits\n",
        ".. automodule:: refimpl.memory.fits\n",
        "{py:obj}`BestFit <refimpl.memory.fits.BestFit>`",
    ):
        assert text in page


@pytest.mark.parametrize(
    ("docstring", "rst"),
    [
        ("The `fit` of a * b.", r"The ``fit`` of a \* b."),
        ("**Launch.** *One* thread; *args, x_ and |x|.", r"**Launch.** *One* thread; \*args, x\_ and \|x\|."),
        ("Sizes:\n\n    a * b\n", "Sizes:\n\n::\n\n    a * b"),
        ("chunk  one block\n       a * b", "::\n\n    chunk  one block\n           a * b"),
        ("Args:\n    x: a `list`.", "Args:\n    x: a ``list``."),
        (
            "| file | idea |\n|---|---|\n| `a` | b |",
            ".. list-table::\n   :header-rows: 1\n\n   * - file\n     - idea\n   * - ``a``\n     - b",
        ),
        (
            "| file | idea |\n|---|---|\n| a | |",
            ".. list-table::\n   :header-rows: 1\n\n   * - file\n     - idea\n   * - a\n     -",
        ),
    ],
)
def test_docstrings_become_restructured_text(docstring: str, rst: str) -> None:
    assert script("reference").to_rst(docstring.strip()) == rst


@pytest.mark.parametrize(
    ("what", "docstring", "lines"),
    [
        ("class", "Point(x: int, y: int = 0)", []),  # made by dataclass
        ("attribute", "Alias for field number 0", ["\\ "]),  # made by NamedTuple
        ("function", "Sizes: `bytes`.", ["Sizes: ``bytes``."]),
        ("attribute", "sizes: bytes", ["\\ ", "sizes: bytes"]),  # or napoleon would take "sizes" for a type
    ],
)
def test_docstrings_are_processed(what: str, docstring: str, lines: list[str]) -> None:
    found = docstring.split("\n")
    script("reference").process_docstring(None, what, "name", None, None, found)
    assert found == lines


# -- the README --------------------------------------------------------------------------------------------------------


def script(name: str) -> ModuleType:
    """A script of the documentation's."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def too_long(text: str) -> list[str]:
    """Lines that a reader of the file has to scroll for; a table that the bench writes is as wide as it is."""
    own = re.sub(r"<!-- begin (.*?) -->.*?<!-- end \1 -->", lambda found: re.sub(r"(?m)^\|.*$", "", found[0]), text,
                 flags=re.DOTALL)  # fmt: skip
    return [line for line in own.splitlines() if len(line) >= 140]


def test_the_readme_is_short() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 155 and too_long(text) == []


def test_a_line_that_is_too_long_is_found() -> None:
    long = "a" * 139
    bench = f"<!-- begin bench -->\nb{long}\n| {long} |\n<!-- end bench -->"
    assert too_long(f"{long}\n| {long} |\n{bench}\n") == [f"| {long} |", f"b{long}"]


@pytest.mark.slow
def test_the_readme_prints_what_the_commands_print() -> None:
    readme = script("readme")
    texts = [page.read_text(encoding="utf-8") for page in readme.PAGES]
    assert [len(readme.BLOCK.findall(text)) for text in texts] >= [1, 5]
    for text in texts:
        assert readme.rewritten(text) == text, "run: python docs/readme.py"
    block = next(found[0] for found in readme.BLOCK.finditer(texts[1]) if "does not fit in 12 GiB" in found[0])
    assert readme.rewritten(block.replace("does not fit in 12 GiB", "fits in 12 GiB")) == block


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
def test_the_page_about_a_network_of_ones_own_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (script,) = fences(ROOT / "docs" / "networks.md", "python")
    monkeypatch.chdir(tmp_path)
    exec(compile(script, "my_network.py", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out.count("s an iteration") >= 3 and (tmp_path / "mine.html").exists()


@pytest.mark.parametrize("path", sorted((ROOT / "tutorials").glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_tutorials_links_lead_somewhere(path: Path) -> None:
    """On the repository, and from the copy in the documentation."""
    stored = path.read_text(encoding="utf-8")
    for text, folder in ((stored, "tutorials"), (script("generate").tutorial(stored), "docs/_generated/tutorials")):
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]
        sources = "".join("".join(cell["source"]) for cell in cells)
        targets = [one or other for one, other in re.findall(r"\]\(([^)#\s]+)|href='([^']+)'", sources)]
        targets = [target for target in targets if not target.startswith("http")]
        assert len(targets) >= 2
        for target in targets:
            place = os.path.normpath(f"{folder}/{target}").replace("docs/_generated/tutorials", "tutorials")
            assert (ROOT / place).exists(), f"{path.name} links to {target}, which is not there"


def test_the_sample_page_is_current(tmp_path: Path) -> None:
    readme = script("readme")
    cli.main([*readme.VIEW, "--out", str(tmp_path / "page.html")])
    assert (tmp_path / "page.html").read_bytes() == readme.SAMPLE.read_bytes(), "run: python docs/readme.py"
    links = [(ROOT / page).read_text("utf-8") for page in ("README.md", "docs/index.md")]
    assert "(docs/_static/vgg16.html)" in links[0] and '"_static/vgg16.html"' in links[1]


@pytest.mark.slow
def test_the_readmes_python_trains(digits: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (snippet,) = [text for text in fences(ROOT / "README.md", "python") if "Trainer" in text]
    exec(compile(snippet, "README.md", "exec"), {"__name__": "readme"})
    assert float(capsys.readouterr().out.splitlines()[-1]) > 0.9
