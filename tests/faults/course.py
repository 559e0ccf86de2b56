"""Faults of the course: its notebooks and quiz, and the pages and figures made for it."""

from __future__ import annotations

from tests.faults.fault import Fault

FAULTS = (
    Fault(
        "a notebook's errors advise any policy",
        "tutorials/01_where_the_memory_goes.ipynb",
        'advise_only(\\"baseline\\")  #',
        "GIB  #",
        "tests/test_tutorials.py::test_no_error_advises_a_policy_before_it_is_introduced",
    ),
    Fault(
        "the quiz takes a wrong answer and explains the right one",
        "tutorials/questions.json",
        '"answer": "a",\n  "because": "max(compute, copy).",\n  "wrong": {\n   "b"',
        '"answer": "b",\n  "because": "max(compute, copy).",\n  "wrong": {\n   "a"',
        "tests/test_quiz.py",
        slow=True,
    ),
    Fault(
        "a lab takes a submission's programs without a proof",
        "tutorials/labs/checks.py",
        "        program.verify()\n",
        "        pass\n",
        "tests/test_labs.py",
    ),
    Fault(
        "a submission's second plan of a case is not compared",
        "tutorials/labs/checks.py",
        "again is None or one.program is None or document(again) != document(one.program)",
        "again is None",
        "tests/test_labs.py",
    ),
    Fault(
        "a bank gives all its words at once",
        "tutorials/labs/counted_threads.py",
        "sum(max(map(one.count, one)) - 1 for one in banks)",
        "sum(max(map(one.count, one)) - 1 for one in banks[:0])",
        "tests/test_labs.py",
    ),
)
