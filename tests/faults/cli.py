"""Faults of the command."""

from __future__ import annotations

from tests.faults.fault import Fault

FAULTS = (
    Fault(
        "every command imports the machines, its help too",
        "refimpl/cli/parallel.py",
        "from refimpl.cli.parser import INTERRUPTED",
        "from refimpl.machine import here as here\nfrom refimpl.cli.parser import INTERRUPTED",
        "tests/refimpl/cli/test_start_up.py",
    ),
    Fault(
        "a plan that does not fit ends with status 0",
        "refimpl/cli/plan.py",
        "    return DOES_NOT_FIT\n",
        "    return DONE\n",
        "tests/refimpl/cli",
    ),
    Fault(
        "a validation file is not tested with",
        "refimpl/backend/data.py",
        'names = {f"test_{name}": name for name in ("images", "labels", "targets") if name in other}',
        "names = dict[str, str]()",
        "tests/refimpl/cli/test_run.py",
    ),
    Fault(
        "an interrupt ends with status 0",
        "refimpl/cli/__init__.py",
        'status, says = INTERRUPTED, "interrupted"',
        'status, says = DONE, "interrupted"',
        "tests/refimpl/cli/test_command.py",
    ),
    Fault(
        "the JSON document leaves out what would fit",
        "refimpl/cli/plan.py",
        '"cheapest": cheapest}',
        '"cheapest": None}',
        "tests/refimpl/cli",
    ),
    Fault(
        "a resumed run takes the algorithms that are the fastest here",
        "refimpl/cli/run.py",
        "path = options.like or (options.resume if",
        "path = options.like or (None if",
        "tests/refimpl/cli/test_run.py -k calibration",
        slow=True,
    ),
    Fault(
        "a name out of a file is printed with what a terminal obeys",
        "refimpl/cli/terminal.py",
        "return super().render_str(harmless(text), **how)",
        "return super().render_str(text, **how)",
        "tests/refimpl/test_damaged_files.py -k terminal_obeys",
    ),
    Fault(
        "the error of a full disk names no file",
        "refimpl/text.py",
        "        error.filename = error.filename or str(path)\n",
        "",
        "tests/refimpl/cli/test_command.py",
    ),
    Fault(
        "a trace does not say how much of it is opaque",
        "refimpl/cli/view.py",
        "{heading(program.network, program.machine)}",
        "{program.network.name}, batch {program.network.batch}",
        "tests/refimpl/cli/test_opaque.py::test_every_command_that_plans_marks_what_is_opaque[view]",
    ),
    Fault(
        "cuDNN's reserve of a recurrent layer has no item",
        "refimpl/report/uncounted.py",
        "        *_reserves(network.layers),\n",
        "",
        "tests/refimpl/cli/test_opaque.py::test_a_recurrent_layer_has_cudnns_reserve_as_an_item",
    ),
)
