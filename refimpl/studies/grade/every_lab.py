"""The grade of a submission for any lab: of modules, of a kernel, or of a script."""

from __future__ import annotations

from refimpl.studies.grade.confined import Limits
from refimpl.studies.grade.criteria import Grade, grade
from refimpl.studies.grade.drawn_cases import cases
from refimpl.studies.grade.kernel_lab import grade_kernel, shapes
from refimpl.studies.grade.lab_tasks import TASKS
from refimpl.studies.grade.waits_lab import grade_script, script_cases

LABS = ("A0", "A1", "A2", "A3", "A4", "A5", "A6")


def grade_lab(lab: str, source: bytes, seed: int, limits: Limits) -> Grade:
    """Judge a submission.

    Args:
        lab: one of LABS.
        source: the file's bytes.
        seed: of the cases.
        limits: of the submission's processes.
    """
    if lab == "A0":
        return grade_kernel(source, "submission.py", shapes(seed), limits)
    if lab == "A2":
        return grade_script(source, script_cases(seed))
    return grade(source, "submission.py", TASKS[lab], cases(TASKS[lab], seed), limits)
