"""Another laptop, as far as this one can be it: the wheel in an empty folder, no C compiler, and no CUDA nor POSIX.

`sitecustomize` hides what macOS and Windows lack from a fresh interpreter.  `make laptops` asks whether every
requirement has a wheel there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tutorials import course

ROOT = Path(__file__).resolve().parents[2]

#: Whatever needs no emulated GPU, in one process; its standard output has the encoding of a Windows console.
TRIED = """
import contextlib, importlib.util, io, os, pathlib, shutil, sys
import pytest
root, installed, *lab = sys.argv[1:]
sys.path[:] = [path for path in sys.path if path != root]  # where the tree is installed to be edited
import kernels, refimpl
from refimpl.cli import demonstration, main

def said(words, status=0):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
        assert main(words.split()) == status, out.getvalue()
    return out.getvalue()

for package in kernels, refimpl:
    assert pathlib.Path(package.__file__).is_relative_to(installed), package.__file__
assert shutil.which("cc") is shutil.which("gcc") is None
lenet = "lenet --batch 4 --policy vdnn-all"
assert "Proved safe" in said(f"plan {lenet}")
assert main("compare lenet --batch 4 --with vdnn-all".split()) == 0
assert "Accuracy" in said(f"run {lenet} --steps 1 --backend cpu")
assert "conv1 backward" in said(f"run {lenet} --by-hand")
said(f"view {lenet} --out page.html")
assert "conv1" in pathlib.Path("page.html").read_text(encoding="utf-8")
said(f"export {lenet} --out script.py")
compile(pathlib.Path("script.py").read_text(encoding="utf-8"), "script.py", "exec")
for options in "--steps 1", "--by-hand":
    refused = said(f"run {lenet} --backend emulated {options}", status=4)
    assert refused.count("\\n") == 1 and "Containerfile" in refused, refused
assert demonstration.run_emulated(None, None, [])
assert not [name for name in sys.modules if name.partition(".")[0] in ("numba_cuda", "cuda")]
assert refimpl.files.LOCKS is (os.environ["REFIMPL_ELSEWHERE"] != "windows")
if os.environ["REFIMPL_ELSEWHERE"] == "mac":  # in `make matrix`: minutes
    if importlib.util.find_spec("torch"):
        pathlib.Path("my_model.py").write_text(MODEL, encoding="utf-8")
        assert "12 GiB" in said("torch my_model.py:make --batch 4 --budget 12GiB")
    assert main(["reproduce", "vdnn"]) == main(["demo"]) == 0
assert pytest.main([*lab, "-q", "-p", "no:cacheprovider"]) == 0
print("all of it ×")
""".replace(
    "MODEL",
    repr("""
import torch

def make(batch):
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)), torch.zeros(batch, 64)
"""),
)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the packages of a wheel that is built from this tree."""
    pytest.importorskip("setuptools", minversion="70.1")
    tree, target = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("installed")
    for name in ("kernels", "refimpl"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tree)
    command = [
        sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--no-build-isolation", "--no-compile",
        "--target", str(target), ".",
    ]  # fmt: skip
    made = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    return target


@pytest.mark.slow
@pytest.mark.parametrize("system", ["windows", pytest.param("mac", marks=pytest.mark.matrix)])
def test_what_is_installed_works_where_cuda_posix_and_compilers_are_absent(
    installed: Path, tmp_path: Path, system: str
) -> None:
    course.write(tmp_path, "https://example.org")
    solution = ROOT / "tutorials" / "solutions" / "a2_waits.py"
    found = tried(system, installed, tmp_path, "tutorials/labs/test_a2.py", f"--submission={solution}")
    assert found.returncode == 0 and found.stdout.endswith("all of it ×\n"), found.stdout + found.stderr
    assert "emulated GPU is not at hand" in found.stdout and "100 of 100" in found.stdout


def tried(system: str, installed: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`TRIED` in a fresh interpreter of another system, in an empty folder."""
    (folder / "nothing").mkdir()
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join((str(Path(__file__).parent), str(installed))), "PYTHONUTF8": "0",
        "PATH": str(folder / "nothing"), "PYTHONIOENCODING": "cp1252", "REFIMPL_ELSEWHERE": system,
    }  # fmt: skip
    command = [sys.executable, "-c", TRIED, str(ROOT), str(installed), *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, encoding="cp1252")
