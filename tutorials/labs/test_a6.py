"""Lab A6, the contest: pytest tutorials/labs/test_a6.py --submission mine.py"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from refimpl.importing import own_code
from refimpl.planner import DoesNotFit, Program, Setup, SetupError, plan
from refimpl.slots.setup import FIELDS
from tutorials.labs.gates import Marked
from tutorials.labs.lab import LAYER_WISE, MACHINE, Case, Lab, machine, network_of

SETUP = LAYER_WISE
SHARE = 0.7  #: of the bytes of layer-wise


class Contest(Lab):
    """Any modules in any slots, or a whole setup."""

    def modules(self, path: Path) -> dict[str, Any]:
        module = own_code.executed(str(path), path.stat().st_mtime_ns)
        whole = getattr(module, "setup", None)
        if whole is not None and not isinstance(whole, Setup):
            raise SetupError(f"setup is {whole!r}, not a setup; write setup = refimpl.presets.vdnn_all.setup")
        found = {name: getattr(module, name) for name in ("setup", *FIELDS) if hasattr(module, name)}
        if not found:
            raise SetupError("the file has no setup and no slot; write setup = …, or offload = … and other slots")
        if whole is None:
            SETUP.replace(**found)
        return found

    def planned(self, case: Case, modules: Mapping[str, Any], budget: int | None = None) -> Program:
        setup = modules["setup"] if "setup" in modules else SETUP.replace(name="submission", **modules)
        return plan(case.built, setup, machine(), case.budget if budget is None else budget)

    def command(self, case: Case, path: Path) -> str:
        given = f"{case.network} --batch {case.batch} --budget {case.budget}B --machine {MACHINE}"
        return f"refimpl view {given} --policy {path}:setup"


LAB = Contest("a6", (), {"SETUP": SETUP}, again=(1.06, 1.12, 1.2), anything=True)


def test_there_is_a_setup(modules: dict[str, Any]) -> None:
    assert modules


def test_it_fits_where_layer_wise_does_not(planned: Callable[..., Program]) -> None:
    network = network_of("tiny-resnet", 8)
    held = plan(network, LAYER_WISE, machine(), 1 << 40).pool_bytes
    try:
        planned("tiny-resnet", 8, int(SHARE * held))
    except DoesNotFit as error:
        raise AssertionError(f"tiny-resnet(8) in {SHARE:.0%} of what layer-wise holds: {error}") from None


class TestMark(Marked):
    lab = LAB
