"""Names of files with parts and losses, functions of Python files that make networks, errors of a user's own code."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import refimpl
from refimpl import NetworkError
from refimpl.importing import own_code
from refimpl.importing.sources import from_file, module_from_file
from tests.messages import raises_naming
from tests.refimpl.importing.onnx_files import small

MINE = """import refimpl
def make(batch, loss="softmax"):
    b = refimpl.Builder("mine", (batch, 3, 8, 8))
    b.conv(2, 1)
    getattr(b, loss)()
    return b
def built(batch, **given):
    return make(batch, **given).build()
def alone():
    return "module", (1, 3)
def batched(batch):
    return "module", (batch, 3)
def three():
    return 1, 2, 3
def one():
    return (1,)
def text():
    return "text"
def leaves(batch):
    raise SystemExit(3)
def refuses(batch):
    raise refimpl.NetworkError("my own refusal")
def usual(batch=8):
    return "module", (batch, 3)
no_function = 7
class Layered:
    def fails(self):
        return {}["key"]
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(own_code, "known", {})
    own_code._executed.cache_clear()
    Path("mine.py").write_text(MINE, encoding="utf-8")
    yield "mine.py"
    sys.modules.pop("mine.py", None)


def test_a_name_s_losses_reach_the_file(mine: str) -> None:
    f = small()
    f.node("Gemm", "flat", f.weight("auxiliary", 2, 5), transB=1, to="other")
    Path("two.onnx").write_bytes(f.model("end", "other").SerializeToString())

    def ends(name: str, batch: int | None = 2) -> list[tuple[str, str]]:
        network = from_file(name, batch)
        assert network is not None and network.batch == (batch or 32)
        return [(output.layer.producers[0].name, output.layer.kind) for output in network.outputs]

    assert ends("two.onnx:/end/Gemm") == [("/end/Gemm", "softmax")]
    assert ends(" two.onnx:/other/Gemm=mean_squared_error ", None) == [("/other/Gemm", "mean_squared_error")]
    assert ends("two.onnx:/end/Gemm=softmax,/other/Gemm=binary_cross_entropy") == [
        ("/end/Gemm", "softmax"),
        ("/other/Gemm", "binary_cross_entropy"),
    ]
    with raises_naming(NetworkError, "/end/Gemm"):
        from_file("two.onnx:/end/Gemm=softmax,/end/Gemm=binary_cross_entropy", 2)
    assert [kind for _, kind in ends("mine.py:make:=pixel_softmax", None)] == ["pixel_softmax"]
    assert [kind for _, kind in ends("mine.py:built:=pixel_softmax")] == ["pixel_softmax"]
    assert [kind for _, kind in ends("mine.py:make")] == ["softmax"]
    assert from_file("vgg16", None) is from_file("a.python", None) is from_file("a.onnx:", None) is None


#: What is after the file's name → what the refusal names.
REFUSED = {
    "mine.py": ("mine.py:make",),
    "mine.py:mak": ("mak", "make"),
    "mine.py:text": ("text(batch=2)", "TypeError"),
    "mine.py:batched": ("batched", "tuple"),
    "mine.py:batched:=softmax": ("batched", "loss"),
    "mine.py:leaves": ("leaves(batch=2)", "line 20", "SystemExit: 3"),
    "mine.py:refuses": ("my own refusal",),
    "none.py:make": ("none.py",),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_s_function_that_makes_no_network(mine: str, name: str) -> None:
    with raises_naming(NetworkError, *REFUSED[name]):
        from_file(name, 2)


def test_a_module_and_its_example(mine: str) -> None:
    assert module_from_file("mine.py:alone", None) == ("module", (1, 3))
    assert module_from_file("mine.py:batched", 5) == ("module", (5, 3))
    assert module_from_file("mine.py:batched", None) == ("module", (32, 3))
    assert module_from_file("mine.py:usual", None) == ("module", (8, 3))
    for name, batch, says in (
        ("mine.py:alone", 4, ("mine.py:alone", "--batch")),
        ("mine.py:three", None, ("3 values", "(module, example)")),
        ("mine.py:text", None, ("str", "(module, example)")),
        ("mine.py", None, ("my_file.py:make",)),
    ):
        with raises_naming(NetworkError, *says):
            module_from_file(name, batch)


# -- own_code ----------------------------------------------------------------------------------------------------------


def failure(function: Any) -> Exception:
    try:
        function()
    except Exception as error:
        return error
    raise AssertionError("it did not fail")


def test_an_error_names_the_innermost_line_of_the_users(mine: str) -> None:
    module = own_code.executed(mine, 1)
    error = failure(module.Layered().fails)
    assert own_code.line_of(error) == "mine.py, line 28, in fails"
    assert own_code.error_line(error) == "mine.py, line 28, in fails: KeyError: 'key'"
    assert own_code.raised(error)
    error = failure(lambda: refimpl.networks.build("vgg17"))
    assert not own_code.raised(error) and own_code.line_of(error) is None
    assert own_code.error_line(ValueError()) == "ValueError"
    assert own_code.error_line(ValueError("two\n  lines")) == "ValueError: two lines"
    error = failure(lambda: module.refuses(3))
    assert own_code.line_of(error) == "mine.py, line 22, in refuses" and not own_code.raised(error), "a refusal of ours"


def test_a_file_that_fails_when_it_is_executed(mine: str) -> None:
    Path("fails.py").write_text("first = 1\nsecond = first / 0\n", encoding="utf-8")
    with raises_naming(NetworkError, "fails.py", "line 2", "ZeroDivisionError"):
        own_code.executed("fails.py", 1)


def test_a_file_is_executed_once_for_each_change(mine: str) -> None:
    first = own_code.executed(mine, 1)
    assert own_code.executed(mine, 1) is first and sys.modules[mine] is first
    assert own_code.executed(mine, 2) is not first
    assert sys.path.count(str(Path.cwd())) == 1, "at the end of the path, once"
    assert sys.path[-1] == str(Path.cwd())
