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
        "tutorials/labs/lab.py",
        "                program.verify()\n",
        "                pass\n",
        "tests/test_labs.py",
    ),
    Fault(
        "a submission's second plan of a case is not compared",
        "tutorials/labs/gates.py",
        "if not lab.once_more(one.case, modules, one.program):",
        "if one.program is None:",
        "tests/test_labs.py",
    ),
    Fault(
        "a bank gives all its words at once",
        "tutorials/labs/counted_threads.py",
        "one.turns += max(banks.values()) - 1",
        "one.turns += 0",
        "tests/test_labs_a0_a2.py",
    ),
    Fault(
        "a mark above the solution's counts without end",
        "tutorials/labs/lab.py",
        "min(MOST, max(0.0,",
        "max(0.0, max(0.0,",
        "tests/test_labs.py",
    ),
    Fault(
        "a wrapper of a paper's module is its author's own work",
        "tutorials/labs/gates.py",
        'if (called and (of_a_paper or code.co_name == "bind"))',
        "if (called and False)",
        "tests/test_labs.py::test_who_asks_a_module_of_the_project_is_found",
    ),
    Fault(
        "who decides as a module in one case is said to do so in all",
        "tutorials/labs/alike.py",
        "if all(its(lab, name, case)",
        "if any(its(lab, name, case)",
        "tests/test_labs.py::test_who_decides_as_a_module_in_every_case_has_its_name",
    ),
)
