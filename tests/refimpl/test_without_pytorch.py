"""PyTorch is no dependency: with an import of it refused, all of refimpl is imported, and plans, proves and simulates.

`tests/refimpl/torch/test_planned.py` has the other half: `Planned` needs PyTorch and a file of decisions, and nothing
else of refimpl.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: Modules that need PyTorch: what carries plans out in it, what sees a module run, and a rival of the bench.
NEED_IT = ("refimpl.torch", "refimpl.importing.observed", "refimpl.importing.recorded", "refimpl.studies.bench.pytorch")

WITHOUT = f"""
import contextlib, importlib, io, pkgutil, sys

for name in ("torch", "torchvision", "transformers"):
    sys.modules[name] = None  # importing it fails, as where it is not installed
import refimpl
from refimpl.cli import main
for module in pkgutil.walk_packages(refimpl.__path__, "refimpl.", onerror=lambda name: None):
    if not module.name.startswith({NEED_IT!r}) and not module.name.endswith("__main__"):
        importlib.import_module(module.name)
program = refimpl.plan("tiny-resnet", "superneurons", "titan-x", "20MiB")
program.verify()
program.simulate()
assert program.decisions()["steps"]
with contextlib.redirect_stdout(io.StringIO()) as said:
    assert main(["compare", "tiny-vgg", "--with", "vdnn-all", "--machine", "titan-x"]) == 0
assert "vdnn-all" in said.getvalue()
open(sys.argv[1], "w").write("def make(batch):\\n    return None, None\\n")
with contextlib.redirect_stderr(io.StringIO()) as said:
    assert main(["torch", sys.argv[1] + ":make"]) == 2
assert said.getvalue().count("\\n") == 1 and "pip install 'refimpl[torch]'" in said.getvalue(), said.getvalue()
assert sys.modules["torch"] is None
print("planned")
"""


@pytest.mark.slow
def test_everything_but_the_executor_works_where_pytorch_cannot_be_imported(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT, str(tmp_path / "my_file.py")]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert found.stdout == "planned\n", found.stderr
