"""What all tests share: hypothesis's profiles, PyTorch as a second oracle, and the markers."""

from __future__ import annotations

import faulthandler
import gc
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# Processes that a test starts import this tree, whatever their folder.
ROOT = Path(__file__).resolve().parent.parent
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))

# PyTorch's and NumPy's threads wait for each other in a busy loop: with the small arrays of a test that takes more
# processor time than the work, and the more the more tests run side by side.
for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

# macOS has no packages of CUDA's, which these files import.
try:
    import cuda.bindings  # noqa: F401
except ImportError:
    collect_ignore = [
        "kernels/emulated/test_images.py", "kernels/emulated/test_unwritten.py", "kernels/test_machine_code.py",
        "refimpl/backend/test_cuda_calls.py",
    ]  # fmt: skip

# What is imported and collected is kept to the end, so it is not searched for garbage meanwhile.
gc.disable()

# Plans do not depend on how fast this machine is: `here` is the rough model, and nothing is measured.
os.environ["REFIMPL_CALIBRATE"] = "0"

# No deadline: the first example of a test may compile a kernel, and a busy machine may draw slowly.  The suite draws
# the same examples every time, few of them where an emulated GPU runs each; a campaign draws new ones.
PATIENT: Any = {"deadline": None, "derandomize": True, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("suite", max_examples=30, **PATIENT)
settings.register_profile("emulated", max_examples=5, **PATIENT)
settings.register_profile("campaign", deadline=None, max_examples=1000, print_blob=True)


#: Files whose tests take up to half a minute each: one that began last would run on with the other workers idle.
LONGEST = ("test_machine_code.py", "test_tutorials.py", "test_demo.py", "test_parallel.py")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--device", choices=("gpu", "emulated", "none"),
        help="what runs the tests marked gpu, all of them; default: the GPU, or without one a selection, emulated",
    )  # fmt: skip
    parser.addoption("--seconds", action="store_true", help="say where the processor's seconds went, by room")
    parser.addoption("--limit", type=float, metavar="SECONDS", help="processor seconds that a test may take")


def pytest_configure(config: pytest.Config) -> None:
    from tests import gpu_device

    gpu_device.choose(config.getoption("--device"))
    if config.getoption("--seconds"):
        from tests.seconds import Seconds

        config.pluginmanager.register(Seconds())
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as a shell starts what is to run in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    emulated = "emulated" if config.getoption("--device") == "emulated" else "suite"
    settings.load_profile("campaign" if selects(config, "campaign") else emulated)


def selects(config: pytest.Config, mark: str) -> bool:
    """Whether -m selects a mark; `-m "not campaign"` does not select campaigns."""
    return re.search(rf"(?<!not )\b{mark}\b", config.getoption("markexpr")) is not None


@pytest.fixture(scope="module", autouse=True)
def quiet_collector() -> None:
    """What earlier modules left alive is not looked through again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def torch() -> Any:
    """PyTorch on the CPU: an oracle and no dependency.  Where it is missing its tests are skipped, and say so."""
    return pytest.importorskip("torch", reason="PyTorch is not installed, so there is no second oracle")


@pytest.fixture(scope="session")
def digits() -> Any:
    """The digits to train on.  Where scikit-learn is missing, the tests that need them are skipped."""
    from refimpl.backend import data

    try:
        return data.digits()
    except data.DataError as missing:
        pytest.skip(str(missing))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A file without the name of any mark that `-m` asks for is not imported: half of a collection's seconds.

    Any file may speak of a GPU, so marks that are about one count where they are marks.
    """
    expression = config.getoption("markexpr")
    names = set(re.findall(r"\w+", expression)) - {"and", "or"}
    if not names or "not" in names or collection_path.suffix != ".py":
        return None
    mark = "|".join(rf"mark\.{name}\b" if name in ("gpu", "emulated", "ptx") else rf"\b{name}\b" for name in names)
    return None if re.search(mark, collection_path.read_text(encoding="utf-8")) else True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Campaigns, matrices and timing run only where `-m` names them, what takes long on an emulated GPU on request.

    To name a file or its folder, or to give --device, is a request.  The longest tests begin first.
    """
    from tests import gpu_device

    asked_for = config.getoption("--device") or "gpu" in config.getoption("markexpr")
    named = {(config.invocation_params.dir / argument.partition("::")[0]).resolve() for argument in config.args}
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if gpu_device.CHOSEN == "emulated":
        for item in on_gpu:
            item.add_marker("slow")
    if gpu_device.CHOSEN == "emulated" and not asked_for:
        left_out = set(on_gpu) - gpu_device.selection(on_gpu)
        left_out |= {item for item in items if item.get_closest_marker("emulated") and item.get_closest_marker("slow")}
        left_out -= {item for item in items if named & {item.path, item.path.parent}}
        config.hook.pytest_deselected(items=[*left_out])
        items[:] = [item for item in items if item not in left_out]
    for mark in ("campaign", "matrix", "timing"):
        if not selects(config, mark):
            config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker(mark)])
            items[:] = [item for item in items if not item.get_closest_marker(mark)]
    items.sort(key=lambda item: item.path.name not in LONGEST)


def pytest_collection_finish() -> None:
    gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") or item.get_closest_marker("emulated"):
        from tests import gpu_device

        if item.get_closest_marker("emulated") and gpu_device.CHOSEN != "emulated":
            pytest.skip("the emulated GPU is not the device of this run: pytest --device emulated")
        if (reason := gpu_device.start()) is not None:
            pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """On the emulated GPU a test fails if the checks find something."""
    from kernels.targets import emulated

    if item.get_closest_marker("campaign"):
        faulthandler.cancel_dump_traceback_later()
    if not item.get_closest_marker("gpu") or not emulated.active():
        return (yield)
    emulated.forgive()
    emulated.next_work("a test")  # a trainer of an earlier test may have set the seconds of what comes next
    yield
    found = emulated.forgive()
    assert found == [], "\n".join(found)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """What fails on the emulated GPU says how to repeat it."""
    from kernels.targets import emulated

    report: Any = yield
    marked = any(map(item.get_closest_marker, ("gpu", "emulated", "ptx")))
    if report.failed and marked and emulated.active():
        command = f"{emulated.environment()} {sys.executable} -m pytest --device emulated '{item.nodeid}'"
        report.sections.append(("repeat it on the emulated GPU", command))
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """A test that never ends is ended.  A campaign takes as long as it takes."""
    from tests import limit

    seconds = item.config.getoption("--limit") or limit.SECONDS
    with nullcontext() if item.get_closest_marker("campaign") else limit.limited(seconds):
        return (yield)
