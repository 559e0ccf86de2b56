"""Words that a reader has to decode stay out of code, docs, notebooks and messages."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
READ = {".py", ".md", ".ipynb", ".js", ".css", ".html", ".c", ".h", ".toml", ".cff"}
MADE = {"_build", "_generated", "measurements", "data", "demo", "build", "dist", "node_modules"}  #: by commands

#: Pattern → the plain word.
RATHER_NOT = {
    r"(?<!lags )(?<!lag )(?<!far )(?<!left )behind": "after, under, in",
    r"so many(?! times)": "the number",
    r"nobody|anybody|somebody|whoever|whom": "the thing that does it: no kernel, a stream, the caller",
    r"puts? out|putting out": "writes, the output of",
    r"made again|(makes?|making) (it|them|\w+'s|a map) again": "recompute, rebuild",
    r"goes away|going away": "is offloaded, is freed",
    r"(it|that|which|they) (is|are) (?-i:none)": "name what is wrong with it",
    r"that there (is|are) not": "unknown",
    r"stands?(?! for| alone|-)|stood": "is",
    r"lies|lain|lying": "is",
    r"anew|lest|thereof|whereof|nought": "again, recomputed",
    r"names right": "accuracy",
}
FORBIDDEN = re.compile("|".join(rf"\b(?:{pattern})\b" for pattern in RATHER_NOT), re.IGNORECASE)


def files() -> list[Path]:
    """Every text that people read and that no command writes; this list of words apart."""
    parts = (ROOT / name for name in ("kernels", "refimpl", "docs", "tutorials", "tests"))
    inside = (path for part in parts for path in part.rglob("*") if path.suffix in READ)
    top = (ROOT / name for name in ("README.md", "CONTRIBUTING.md", "Makefile", "setup.py", "pyproject.toml"))
    wanted = (path for path in (*top, *inside) if not MADE & set(path.relative_to(ROOT).parts[:-1]))
    return sorted(path for path in wanted if path != Path(__file__).resolve())


def words(path: Path) -> str:
    """The file's text; of a notebook, its cells and what they printed, without pictures."""
    text = path.read_text("utf-8")
    if path.suffix != ".ipynb":
        return text
    cells = json.loads(text)["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    printed = [output.get("text", output.get("data", {}).get("text/plain", "")) for output in outputs]
    return "\n".join("".join(part) for part in [*(cell["source"] for cell in cells), *printed])


def test_plain_words() -> None:
    found = []
    for path in files():
        text = words(path)
        for word in FORBIDDEN.finditer(text):
            line, around = text.count("\n", 0, word.start()) + 1, text[max(0, word.start() - 40) : word.end() + 40]
            found.append(f"{path.relative_to(ROOT)}:{line}: {word[0]!r} in: {' '.join(around.split())}")
    assert not found, "\n".join(["rather not; see RATHER_NOT in tests/test_english.py for the plain word:", *found])


@pytest.mark.parametrize(
    "line", ["a pool behind its last use", "Nobody waits for it", "what layer 1 puts out", "the block lies at 0"]
)
def test_a_word_is_found(line: str) -> None:
    assert FORBIDDEN.search(line)


@pytest.mark.parametrize("line", ["the copy lags behind", "a stand-in", "one bit stands for one number", "behind_all"])
def test_plain_meanings_stay(line: str) -> None:
    assert not FORBIDDEN.search(line)
