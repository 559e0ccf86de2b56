"""Planted faults and mutants: each can be planted, and a mutant is one small change of code that runs."""

from __future__ import annotations

import ast
from collections import Counter

from tests.faults.copies import ROOT, TEXTS, WRONG_IN
from tests.faults.mutants import Source, drawn
from tests.faults.plant import FAULTS

TEXT = '''\
"""Text."""
LIMIT: int = 3


@kernel(block=256)
def find(x: int, y: int = 2) -> bool:
    """Text."""
    é = "é" if x not in (1,) and y <= LIMIT else f"{y + 1}"
    if not x or min(x, y):
        raise KeyError("no", x + 1)
    self.found += x * -1.5
    note(é, LIMIT)
    return x is None
if TYPE_CHECKING:
    note(1)
kept = lru_cache(maxsize=4)(find)
best = np.maximum(kept, 1)
'''


def test_what_can_be_changed_in_a_text() -> None:
    found = Source("kernels/find.py", TEXT).mutants
    assert Counter((one.line, one.old, one.new) for one in found) == Counter(
        [
            (2, "3", "4"), (6, "2", "3"),
            (8, "not in", "in"), (8, "1", "2"), (8, "and", "or"), (8, "<=", "<"),
            (8, "x not in (1,) and y <= LIMIT", "not (x not in (1,) and y <= LIMIT)"),
            (9, "not ", ""), (9, "or", "and"), (9, "min", "max"),
            (9, "not x or min(x, y)", "not (not x or min(x, y))"),
            (10, 'raise KeyError("no", x + 1)', "pass"),
            (11, "+=", "-="), (11, "self.found += x * -1.5", "pass"), (11, "*", "+"), (11, "1.5", "3.0"),
            (12, "note(é, LIMIT)", "pass"), (12, "é, LIMIT", "LIMIT, é"), (13, "is", "is not"),
            (17, "1", "2"),
        ]
    )  # fmt: skip
    for one in found:
        ast.parse(TEXT[: one.start] + one.new + TEXT[one.end :])


def test_a_seed_draws_the_same_mutants_of_different_lines_that_have_no_fault() -> None:
    first, again, other = (drawn(ROOT, seed, 30, "refimpl/machine") for seed in (1, 1, 2))
    assert first == again != other and len({(one.file, one.line) for one in first}) == 30
    spoilt = [(one.file, one.start) for one in drawn(ROOT, 1, 10**6, "refimpl/machine")]
    for fault in FAULTS:
        text = (ROOT / fault.file).read_text("utf-8") if fault.file.startswith("refimpl/machine") else ""
        if fault.old in text:
            begin = text.index(fault.old)
            assert not any(file == fault.file and begin <= at < begin + len(fault.old) for file, at in spoilt)


def test_every_fault_can_be_planted() -> None:
    """Its text is in its file once, or, where the code has moved, once in one other file."""
    files = (path for folder in WRONG_IN for path in (ROOT / folder).rglob("*") if path.suffix in TEXTS)
    texts = {path: path.read_text("utf-8") for path in files}

    def there(old: str, file: str) -> bool:
        found = [path for path, text in texts.items() if text.count(old) == 1]
        return ROOT / file in found or len(found) == 1

    assert [f"{fault.file}: {fault.what}" for fault in FAULTS if not there(fault.old, fault.file)] == []
    assert [what for what, count in Counter(fault.what for fault in FAULTS).items() if count > 1] == []
