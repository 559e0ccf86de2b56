"""Every notebook runs from its first cell to its last, and is stored without what it printed."""

from __future__ import annotations

from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed: no notebook can be read")

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "tutorials").glob("*.ipynb"))


def stored_output(notebook: nbformat.NotebookNode) -> list[int]:
    """Numbers of the code cells that keep outputs or a count of executions."""
    cells = enumerate(notebook.cells, 1)
    return [n for n, cell in cells if cell.cell_type == "code" and (cell.outputs or cell.execution_count is not None)]


def test_there_are_tutorials() -> None:
    assert NOTEBOOKS, "tutorials/ is empty"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_without_outputs(path: Path) -> None:
    assert stored_output(nbformat.read(path, 4)) == [], f"{path.name}: clear all outputs before you commit it"


def test_a_stored_output_is_found() -> None:
    clean, dirty = nbformat.v4.new_code_cell("1 + 1"), nbformat.v4.new_code_cell("1 + 1", execution_count=3)
    assert stored_output(nbformat.v4.new_notebook(cells=[clean, dirty])) == [2]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: no notebook can be executed")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # this tree, whatever is installed
    notebook = nbformat.read(path, 4)
    runner = nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(path.parent)}})
    runner.execute()  # raises with the cell and its traceback
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert any(output.output_type in ("display_data", "execute_result", "stream") for output in outputs)
