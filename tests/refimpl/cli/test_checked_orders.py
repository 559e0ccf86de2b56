"""`refimpl check-kernel` without an emulated GPU: the orders that it tries, what it refuses, and its arguments."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from refimpl.cli import check_kernel
from refimpl.cli.parser import Fail
from tests.messages import raises_naming
from tests.refimpl.cli.said import Command


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The emulated GPU's calls; a kernel is neither compiled nor run."""
    from kernels.targets import emulated, gpu

    calls: list[Any] = []
    monkeypatch.setattr(emulated, "why_not", lambda: None)
    monkeypatch.setattr(gpu, "why_not_compile", lambda: None)
    monkeypatch.setattr(emulated, "start", lambda **how: calls.append(how))
    monkeypatch.setattr(emulated, "order", lambda *given: calls.append(given))
    monkeypatch.setattr(
        check_kernel, "loaded", lambda text: ("function", "scale", (32,) if "declared" in text else None)
    )
    return calls


def finding(monkeypatch: pytest.MonkeyPatch, *found: list[str]) -> list[Any]:
    """What each launch finds, in turn; the arguments of all launches."""
    asked: list[Any] = []
    turns = iter(found)

    def launched(*given: Any) -> list[str]:
        asked.append(given)
        return next(turns, [])

    monkeypatch.setattr(check_kernel, "launched", launched)
    return asked


def test_every_order_is_tried(refimpl: Command, orders: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    asked = finding(monkeypatch)
    said = refimpl("check-kernel", "a.py:scale", "--grid", "4,2", "--seeds", 2, "--with", "f4[3]", 7)
    assert (said.status, said.out) == (0, "scale: nothing found in 3 orders of blocks and threads.\n")
    assert orders == [{"races": "always"}, ("late", 0), ("late", 1), ("late", 2)]
    assert asked == [("function", (4, 2), (64,), ["f4[3]", "7"])] * 3
    refimpl("check-kernel", "declared.py:scale", "--seeds", 0)
    refimpl("check-kernel", "declared.py:scale", "--seeds", 0, "--block", "8,8")
    assert [given[2] for given in asked[3:]] == [(32,), (8, 8)]


def test_the_first_order_that_finds_something_ends_it(
    refimpl: Command, orders: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    finding(monkeypatch, ["out of bounds"])
    said = refimpl("check-kernel", "a.py:scale")
    assert said.status == 1 and said.out == "scale: found in the plain order of blocks and threads:\n  out of bounds\n"
    asked = finding(monkeypatch, [], [], ["a race", "another"])
    said = refimpl("check-kernel", "a.py:scale")
    first = "scale: found in the order drawn from seed 2 of blocks and threads:"
    assert said.status == 1 and said.out.splitlines() == [first, "  a race", "  another"] and len(asked) == 3


def test_what_the_emulated_gpu_cannot_do_is_one_line(
    refimpl: Command, orders: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from kernels.targets import emulated, gpu

    def raises(error: Exception) -> None:
        def launched(*_: Any) -> list[str]:
            raise error

        monkeypatch.setattr(check_kernel, "launched", launched)

    raises(emulated.UnsupportedPtx("wgmma"))
    said = refimpl("check-kernel", "a.py:scale")
    assert said.status == 2 and "a.py:scale" in said.err and "wgmma" in said.err
    raises(emulated.NoCompiler("no gcc"))
    assert refimpl("check-kernel", "a.py:scale").status == 4
    monkeypatch.setattr(gpu, "why_not_compile", lambda: "no wheels")
    said = refimpl("check-kernel", "a.py:scale")
    assert said.status == 4 and said.err == "refimpl check-kernel: no wheels\n"


NO_KERNELS = """
x = 3
def kernel(a): pass
def yields(a): yield
def many(*a): pass
def named(**a): pass
"""


@pytest.mark.parametrize(
    ("what", "words"),
    [("", ["no kernel"]), ("missing", ["missing"]), ("x", ["x", "int"]), ("yields", ["yields"]), ("many", ["many"]),
     ("named", ["named"])],
)  # fmt: skip
def test_what_is_no_kernel_is_refused(what: str, words: list[str], tmp_path: Path) -> None:
    path = tmp_path / "my.py"
    path.write_text(NO_KERNELS)
    with raises_naming(Fail, "my.py", *words):
        check_kernel.loaded(f"{path}:{what}")
    for text in (f"{path}", f"{tmp_path}/none.py:kernel", ":kernel"):
        with raises_naming(Fail, text):
            check_kernel.loaded(text)


def test_arguments_are_arrays_of_known_kinds_and_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernels.targets import gpu

    monkeypatch.setattr(gpu, "to_device", lambda array: array)
    given = check_kernel.argument("float32[2,3]")
    assert given.shape == (2, 3) and given.dtype == np.float32 and len(np.unique(given)) == 6
    assert np.array_equal(given, check_kernel.argument("float32[2,3]"))
    assert check_kernel.argument("int32[4]").tolist() == [0, 1, 2, 3]
    assert [check_kernel.argument(text) for text in ("-7", "+7", str(2**64 - 1), str(-(2**63)))] == [
        -7, 7, 2**64 - 1, -(2**63),
    ]  # fmt: skip
    half = check_kernel.argument("0.5")
    assert half == 0.5 and isinstance(half, np.float32)
    largest = check_kernel.LARGEST // 4
    assert check_kernel.argument(f"float32[{largest // 1024},1]").size == largest // 1024
    for text in (str(2**64), str(-(2**63) - 1), "text", "float32[x]", "complex9[2]", f"float32[{largest + 1}]",
                 "float32[" + ",".join("1" * (check_kernel.MOST_AXES + 1)) + "]"):  # fmt: skip
        with raises_naming(Fail, text.partition(",")[0]):
            check_kernel.argument(text)


def test_a_compilers_reason_is_one_line_with_its_place() -> None:
    """Colours and what Numba says before it are left out."""
    function = SimpleNamespace(py_func=test_every_order_is_tried)

    def reason(text: str) -> str:
        return check_kernel.reason(ValueError(text), function)

    here = f"({__file__})"
    assert reason("") == f"ValueError {here}"
    assert reason('\x1b[1mFailed in cuda mode\n  bad name \n\nFile "k.py", line 7:') == "bad name (k.py, line 7)"
    assert (
        reason("No implementation found for signature:\n >>> f(int)\nmore")
        == f"No implementation for >>> f(int) {here}"
    )
    assert reason("ERROR_X: in '_Z3abc'\nat _Z3abc: bad") == f"ERROR_X: in  at: bad {here}"
