"""Every notebook runs, is stored with the outputs of that run, and is fit to learn from.

`python -m tests.test_tutorials --write [NAME …]` runs the notebooks and stores their outputs.  The test runs them, too,
and compares.  A cell with the tag "measured" prints what depends on the machine: there numbers and pictures may differ.
"""

from __future__ import annotations

import base64
import io
import itertools
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed: no notebook can be read")

ROOT = Path(__file__).resolve().parent.parent
TUTORIALS = ROOT / "tutorials"
NOTEBOOKS = sorted(TUTORIALS.glob("*.ipynb"))
QUICK = ("03_vdnn",)  #: `make test` runs these, `make notebooks` the others
NEEDS = {"10_from_a_plan_to_your_training_loop": "torch"}  #: notebook → what it cannot run without
NUMBER = re.compile(r"0x[0-9a-f]+|\d[\d,]*(\.\d+)?(e[-+]?\d+)?")
MISSING = re.compile(r"^(\$[^\n]*\n)?Skipped|is not installed", re.MULTILINE)  #: what a cell says without a tool

#: A cell appended by the test: each check of an exercise gets answers that are no answers.
ABSURD = """
def raises(*arguments, **options):
    raise RuntimeError("an error of the reader's")

print([
    (name, str(answer), verdict)
    for name, right in list(globals().items())
    if name.startswith("check_") and hasattr(right, "__wrapped__")
    for answer in (raises, None, 5, "text", {}, ["no such name"], lambda *given: "text", lambda *given: {}["conv1"])
    if (verdict := right(answer)) is not False
])
"""


#: Another one: each check takes the right answers of a file of solutions, and refuses its wrong ones and the skeletons.
ANSWERED = """
import runpy

for name, (right, wrong) in runpy.run_path("solutions/{}.py")["ANSWERS"].items():
    assert all(map(globals()[name], right)), f"{{name}} refuses a solution"
    assert not any(map(globals()[name], wrong)), f"{{name}} takes a wrong answer"
"""


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def tags(cell: Any) -> list[str]:
    return cell.metadata.get("tags", [])


# -- running -----------------------------------------------------------------------------------------------------------


#: Runs before each notebook: what an earlier one has defined and drawn is gone, and what its reader had met.
RESET = """
import matplotlib.pyplot
import refimpl.names.advice
matplotlib.pyplot.close("all")
matplotlib.rcdefaults()
refimpl.names.advice.advise_only()
%reset -f
"""


@contextmanager
def started(calibrated: bool = False) -> Iterator[Any]:
    """A Jupyter kernel for one notebook after another: what they all import takes seconds, so it is imported once."""
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: no notebook can be executed")
    # this tree, and the same plans on every machine
    here = {"PYTHONPATH": str(ROOT), "REFIMPL_CALIBRATE": str(int(calibrated))}
    client = nbclient.NotebookClient(nbformat.v4.new_notebook(), resources={"metadata": {"path": str(TUTORIALS)}})
    with client.setup_kernel(env={**os.environ, **here}):
        yield client


@pytest.fixture(scope="module")
def kernel() -> Iterator[Any]:
    with started() as client:
        yield client


def fresh(path: Path, kernel: Any, *more: str) -> Any:
    """The notebook run from its first cell to its last, cleaned; `more` cells are appended.  Raises the first error."""
    notebook = nbformat.read(path, 4)
    notebook.cells = [
        nbformat.v4.new_code_cell(RESET), *notebook.cells, *map(nbformat.v4.new_code_cell, more)
    ]  # fmt: skip
    client = type(kernel)(notebook, km=kernel.km, timeout=900)
    client.kc = kernel.kc
    client.execute(cleanup_kc=False)
    del notebook.cells[0]
    return cleaned(notebook)


def cleaned(notebook: Any) -> Any:
    """Without what says when and where it ran; streams that follow one another are one."""
    notebook.metadata.language_info = {"name": "python"}
    for number, cell in enumerate(code_cells(notebook), 1):
        cell.metadata.pop("execution", None)
        cell.execution_count = number
        outputs: list[Any] = []
        for output in cell.outputs:
            output.pop("execution_count", None)
            if output.output_type == "execute_result":
                output = nbformat.v4.new_output("display_data", dict(output.data))
            if output.output_type == "stream" and outputs and outputs[-1].get("name") == output.name:
                outputs[-1].text += output.text
            else:
                outputs.append(output)
            if "metadata" in output:
                alt = output.metadata.get("image/png", {}).get("alt")
                output.metadata = {"image/png": {"alt": alt}} if alt else {}
            if "image/png" in output.get("data", {}):
                output.data = {"image/png": output.data["image/png"]}
        cell.outputs = outputs
    return notebook


# -- comparing ---------------------------------------------------------------------------------------------------------


def text_of(output: Any) -> str:
    return output.text if output.output_type == "stream" else "".join(output.data.get("text/plain", ""))


def pictures_differ(one: str, other: str) -> bool:
    """Two PNGs in base64: another size, or somewhere another colour over a patch of 16 × 16 pixels."""
    import matplotlib.image
    import numpy as np

    a, b = (matplotlib.image.imread(io.BytesIO(base64.b64decode(picture)))[..., :3] for picture in (one, other))
    if np.abs(np.subtract(a.shape, b.shape)).max() > 8:  # another release of matplotlib may need a pixel more
        return True
    rows, columns = (min(a.shape[axis], b.shape[axis]) // 16 for axis in (0, 1))
    apart = np.abs(a[: rows * 16, : columns * 16] - b[: rows * 16, : columns * 16]).mean(2)
    return bool(a.shape == b.shape and apart.reshape(rows, 16, columns, 16).mean((1, 3)).max() > 0.1)


def differences(stored: Any, run: Any) -> Iterator[str]:
    """Cells whose stored outputs are not those of the run, apart from what a machine decides."""
    for cell, again in zip(code_cells(stored), code_cells(run), strict=True):
        measured = "measured" in tags(cell)
        said, says = ("".join(map(text_of, each.outputs)) for each in (cell, again))
        if measured:
            if MISSING.search(says):
                continue
            said, says = ("".join(NUMBER.sub("#", text).split()) for text in (said, says))
        shown, shows = (
            [output.data["image/png"] for output in each.outputs if "image/png" in output.get("data", {})]
            for each in (cell, again)
        )
        if said != says:
            yield f"{cell.id} printed:\n{said}\nand prints:\n{says}"
        elif len(shown) != len(shows) or (not measured and any(map(pictures_differ, shown, shows))):
            yield f"{cell.id} shows another picture"


# -- tests -------------------------------------------------------------------------------------------------------------


def missing_for_the_emulated_gpu() -> str | None:
    from kernels.targets import emulated, gpu

    return emulated.why_not() or gpu.why_not_compile()


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[pytest.mark.matrix] * (path.stem not in QUICK), id=path.stem) for path in NOTEBOOKS],
)
def test_runs_and_the_stored_outputs_are_current(path: Path, kernel: Any) -> None:
    if path.stem in NEEDS:
        pytest.importorskip(NEEDS[path.stem], reason=f"{NEEDS[path.stem]} is not installed: the notebook is about it")
    emulates = "emulated.start()" in "".join(cell.source for cell in code_cells(nbformat.read(path, 4)))
    if emulates and (reason := missing_for_the_emulated_gpu()):
        pytest.skip(reason)
    answered, solutions = [], TUTORIALS / "solutions" / f"{path.stem}.py"
    if solutions.exists():  # its checks take these, and refuse the wrong ones there
        listed = "\nANSWERS: " in solutions.read_text("utf-8")
        answered = [ANSWERED.format(path.stem) if listed else f"%run -i solutions/{path.stem}.py"]
    run = fresh(path, kernel, *answered, ABSURD)
    never_stopped = run.cells.pop().outputs[0].text
    assert "KeyError" not in never_stopped, "a check says what is missing, by name"
    for cell in answered:  # `%run` shows an error, and its cell ends well all the same
        errors = [each.ename for each in run.cells.pop().outputs if each.output_type == "error"]
        assert not errors, f"{cell}: {errors[0]}"
    assert never_stopped.rstrip().endswith("[]"), "a check took an absurd answer, or said nothing"
    found = list(differences(nbformat.read(path, 4), run))
    assert not found, "\n".join([f"python -m tests.test_tutorials --write {path.stem}", *found])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_with_outputs(path: Path) -> None:
    """All of one run, from first to last, with nothing that names a machine's folders."""
    notebook = nbformat.read(path, 4)
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == [*range(1, len(cells) + 1)]
    outputs = [output for cell in cells for output in cell.outputs]
    assert outputs
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    printed = "".join(map(text_of, outputs))
    assert not re.search(r"/(tmp|home|root|work|usr|Users)/|[A-Z]:\\", printed)


@pytest.mark.parametrize("path", [path for path in NOTEBOOKS if path.stem != "quiz"], ids=lambda path: path.stem)
def test_fit_to_learn_from(path: Path) -> None:
    """The glossary at the top, a cell for the guess after every question, checks that never stop, a page last."""
    cells = nbformat.read(path, 4).cells
    assert "glossary.md" in cells[0].source
    assert "(../docs/reports.md)" in cells[-1].source
    for cell, following in itertools.pairwise(cells):
        if "**Question.**" in cell.source:
            assert "guess" in tags(following) and following.source == "# your guess", cell.id
    code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    checks = re.findall(r"^(.*)\ndef check_(?!kernel\b)", code, re.MULTILINE)
    assert checks and set(checks) == {"@check"}
    assert not re.search(r"^def (table|say|show)\(", code, re.MULTILINE), "refimpl.report.notebook has these"


# -- what the reader has met -------------------------------------------------------------------------------------------

ADVICE = re.compile(r"--policy\s+([\w-]+)\s+fits")
ADVISE_ONLY = re.compile(r"^(?:\w+ = .*\n)?advise_only\((.*?)\)", re.MULTILINE)


def path_of_the_course() -> list[Path]:
    """The notebooks in the order in which tutorials/README.md lists them: by number, then the side tracks."""
    rows = re.findall(r"^\| \[[\dK]\d\]\((\w+\.ipynb)\)", (TUTORIALS / "README.md").read_text("utf-8"), re.MULTILINE)
    return [TUTORIALS / row for row in rows]


CELLS, WORDS = 80, 3000  #: of a notebook at most: two sittings
TIME = re.compile(r"Time:\*.*\b\d+ (s|seconds|minutes)\b.*\(2 cores, shared\)")


def test_each_notebook_says_what_it_answers_and_leads_to_the_next() -> None:
    """Question, time and needs at the top, the next notebook's link at the end, and no more than can be read."""
    path = path_of_the_course()
    for notebook, following in zip(path, [*path[1:], None], strict=True):
        cells = nbformat.read(notebook, 4).cells
        top, last = " ".join(cells[0].source.split()), cells[-1].source
        link = following.name if following and following.name[0] != "K" else "README.md"
        assert "?" in top and TIME.search(top) and "**You need:**" in top, notebook.stem
        assert last.startswith("## Next\n") and f"]({link}" in last, f"{notebook.stem}: no link to {link}"
        words = sum(len(cell.source.split()) for cell in cells if cell.cell_type == "markdown")
        assert len(cells) <= CELLS and words <= WORDS, f"{notebook.stem}: {len(cells)} cells, {words} words"


def met_in(source: str, kind: str) -> set[str]:
    """The presets that a cell names: in code as a text or an attribute, in a text also by a name that has a hyphen."""
    from refimpl.names.presets import PRESETS

    text = ADVISE_ONLY.sub("", source).lower().replace("_", "-")
    return {
        name for name in PRESETS
        if re.search(rf"(?:[`\"]|presets\.){name}(?![\w-])", text)
        or (kind == "markdown" and "-" in name and re.search(rf"(?<![\w-]){name}(?![\w-])", text))
    }  # fmt: skip


def may_advise_anything(sources: Sequence[str]) -> bool:
    """Whether a notebook shows an error that advises, and does not say which policies the reader has met."""
    shows = any("refimpl.plan(" in source and "DoesNotFit as" in source for source in sources)
    return shows and not any(map(ADVISE_ONLY.search, sources))


def strangers(notebooks: Iterable[tuple[str, Any]]) -> Iterator[str]:
    """Where an error advises a policy that no cell before it has named, or might on another machine."""
    from refimpl.names.presets import PAPERS

    met: set[str] = set()
    for name, notebook in notebooks:
        *cells, _page = notebook.cells  # the last one is the same everywhere
        sources = [cell.source for cell in cells if cell.cell_type == "code"]
        papers = [paper for paper, presets in PAPERS.items() if paper != "combined" and met.isdisjoint(presets)]
        if papers and may_advise_anything(sources):
            yield f"{name} shows errors and calls no advise_only; the reader has not met {', '.join(papers)}"
        for cell in cells:
            met |= met_in(cell.source, cell.cell_type)
            for advised in ADVICE.findall("".join(map(text_of, cell.get("outputs", [])))):
                if advised not in met:
                    yield f"{name}, {cell.id}: advises {advised}, which the reader has not met"
        allowed = re.findall(
            r"\"([\w-]+)\"", " ".join(found[0] for source in sources for found in ADVISE_ONLY.finditer(source))
        )
        yield from (f"{name}: advise_only({one}), which the reader has not met" for one in allowed if one not in met)


def test_the_path_has_every_notebook_once() -> None:
    assert sorted(path_of_the_course()) == [path for path in NOTEBOOKS if path.stem != "quiz"]


def test_no_error_advises_a_policy_before_it_is_introduced() -> None:
    assert not list(strangers((path.stem, nbformat.read(path, 4)) for path in path_of_the_course()))


def test_a_stranger_is_found() -> None:
    page = nbformat.v4.new_markdown_cell("the page")
    told = nbformat.v4.new_output("stream", text="It needs 22 GiB. Within 12 GiB, --policy\nvdnn-all fits.")
    planned = "try:\n    refimpl.plan()\nexcept refimpl.DoesNotFit as error:\n    print(error)"
    only = nbformat.v4.new_code_cell('advise_only("baseline", "vdnn-all")')
    error = nbformat.v4.new_code_cell(planned, outputs=[told])
    lesson = nbformat.v4.new_markdown_cell("The preset `baseline` keeps all; vDNN-all offloads X.")

    def found(*cells: Any) -> list[str]:
        return list(strangers([("a notebook", nbformat.v4.new_notebook(cells=[*cells, page]))]))

    assert not found(lesson, only, error)
    assert len(found(only, error, lesson)) == 1 and "advises vdnn-all" in found(only, error, lesson)[0]
    assert len(found(lesson, error)) == 1 and "calls no advise_only" in found(lesson, error)[0]
    assert ["advise_only(vdnn-all)" in each for each in found(only, lesson)] == []
    assert len(found(only)) == 2


# -- pictures ----------------------------------------------------------------------------------------------------------

SAYS = 40  #: letters in which one can say what is to be seen


def test_every_picture_of_a_notebook_says_what_is_to_be_seen() -> None:
    alts = []
    for path in NOTEBOOKS:
        for cell in code_cells(nbformat.read(path, 4)):
            for output in cell.outputs:
                if "image/png" in output.get("data", {}):
                    alt = output.metadata.get("image/png", {}).get("alt", "")
                    assert len(alt) >= SAYS and "\n" not in alt, f"{path.stem}, {cell.id}: {alt!r}"
                    alts.append(alt)
    assert len(alts) > 30 and len({*alts}) == len(alts)


def test_solutions_stand_beside_the_notebooks() -> None:
    for path in NOTEBOOKS:
        text = "\n".join(cell.source for cell in nbformat.read(path, 4).cells)
        assert "## Solutions" not in text and "_solved" not in text, path.stem
        if re.search(r"^def check_(?!kernel\b)", text, re.MULTILINE):
            named = re.findall(r"solutions/(\w+\.py)", text)
            assert named and all((TUTORIALS / "solutions" / name).is_file() for name in named), path.stem


def notebook_of(*printed: str, measured: bool = False) -> Any:
    cells = [nbformat.v4.new_code_cell("", metadata={"tags": ["measured"] * measured}) for _ in printed]
    for cell, text in zip(cells, printed, strict=True):
        cell.outputs = [nbformat.v4.new_output("stream", text=text)]
    return nbformat.v4.new_notebook(cells=cells)


def test_a_stale_output_is_found() -> None:
    stored, run = notebook_of("12.5 ms", "12 MiB"), notebook_of("12.5 ms", "13 MiB")
    assert len(list(differences(stored, run))) == 1 and not list(differences(stored, stored))
    stored, run = notebook_of("12.5 ms slow", measured=True), notebook_of("9 ms  slow", measured=True)
    assert not list(differences(stored, run))
    assert list(differences(stored, notebook_of("9 ms fast", measured=True)))
    assert not list(differences(stored, notebook_of("Skipped: no compiler", measured=True)))


def picture(heights: list[float]) -> str:
    from matplotlib.figure import Figure

    figure, file = Figure(figsize=(4, 2)), io.BytesIO()
    figure.add_subplot().bar(range(len(heights)), heights)
    figure.savefig(file, dpi=80)
    return base64.b64encode(file.getvalue()).decode()


if __name__ == "__main__":
    if "--write" not in sys.argv:
        sys.exit(__doc__)
    for path in NOTEBOOKS:
        if not set(sys.argv[2:]) or any(name in path.stem for name in sys.argv[2:]):
            began, used = time.perf_counter(), os.times()
            with started() as client:
                nbformat.write(fresh(path, client), path)
            now = os.times()
            spent = sum(now[:4]) - sum(used[:4])
            print(f"{path.stem}: {time.perf_counter() - began:.0f} s, {spent:.0f} s of processors", flush=True)
