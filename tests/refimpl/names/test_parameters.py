"""Parameters of modules as text, modules from outside the tree, and how a setup is named after both."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

import refimpl
from refimpl import SetupError
from refimpl.names.modules import module
from refimpl.names.parameters import value_of
from refimpl.names.presets import parse, setup
from refimpl.slots.module_text import parameters
from tests.messages import raises_naming

OUTSIDE = '''\
"""A module outside the tree."""
from dataclasses import dataclass
from typing import ClassVar

from refimpl import presets, slots
from refimpl.vdnn import ALL

@dataclass(frozen=True)
class BigMaps(slots.Offload):
    """Maps of at least a number of bytes."""
    least: int = 1 << 20  #: bytes
    name: ClassVar = "big-maps"
    summary: ClassVar = "maps of at least a number of bytes"
    needs: ClassVar = frozenset({"release"})
    offers: ClassVar = frozenset({"offload"})

    def bind(self, context):
        return Bound(ALL.bind(context), self.least)

class Bound:
    def __init__(self, every, least):
        self.every, self.least = every, least
    def offloads(self):
        return {tensor: why for tensor, why in self.every.offloads().items() if tensor.nbytes >= self.least}
    def leaves(self, step):
        return [tensor for tensor in self.every.leaves(step) if tensor.nbytes >= self.least]

@dataclass(frozen=True)
class Nameless(slots.Offload):
    def bind(self, context):
        return context

HALF_A_MEGABYTE = BigMaps(1 << 19)
MINE = presets.vdnn_all().replace(name="mine", offload=HALF_A_MEGABYTE)
number = 3
'''


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A Python module in the working directory, of a name that no other test uses."""
    name = f"outside_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(OUTSIDE)
    (tmp_path / f"{name}_broken.py").write_text("1 / 0")
    (tmp_path / f"{name}_needs.py").write_text("import no_such_package")
    monkeypatch.chdir(tmp_path)
    return name


@pytest.mark.parametrize(
    ("slot", "text", "values"),
    [
        ("prefetch", "superneurons-ahead:5,late", {"distance": 5, "order": "late"}),
        ("prefetch", "superneurons-ahead:order=late", {"distance": 3, "order": "late"}),
        ("allocator", "block-heap:2KiB", {"granularity": 2048}),
        ("pinned", "vdnnpp-compressed:0.25,0.5+0.75,limit=1.5GiB",
         {"density": 0.25, "densities": (0.5, 0.75), "limit": 3 << 29, "lag": 3}),
        ("pinned", "vdnnpp-on-demand:none", {"limit": None}),
        ("offload", "vdnnpp-conv:conv+fc,every=3", {"kinds": ("conv", "fc"), "every": 3}),
    ],
)  # fmt: skip
def test_parameters_are_read_by_their_types(slot: str, text: str, values: dict[str, Any]) -> None:
    assert parameters(module(slot, text)) == values


@pytest.mark.parametrize(
    ("slot", "text", "says"),
    [
        (
            "prefetch",
            "superneurons-ahead:x",
            ("superneurons-ahead", "distance", "x"),
        ),
        (
            "prefetch",
            "superneurons-ahead:dist=3",
            ("dist", "distance"),
        ),
        ("prefetch", "superneurons-ahead:order=late,3", ("3",)),
        ("liveness", "layer-wise:3", ("layer-wise", 0)),
        ("offload", "vdnnall:3", ("vdnnall", "vdnn-all")),
        (
            "offload",
            "{}:BigMap",
            ("BigMap", "BigMaps", "ALL", "Nameless"),
        ),
        ("offload", "{}:Nameless", ("offload", "Nameless", "name", "ClassVar")),
        ("offload", "{}_broken:BigMaps", (1, "ZeroDivisionError")),
        ("prefetch", "{}:BigMaps", ("big-maps", "offload", "prefetch")),
    ],
)
def test_what_cannot_be_is_one_line(outside: str, slot: str, text: str, says: tuple[object, ...]) -> None:
    with raises_naming(SetupError, *says):
        module(slot, text.format(outside))


def test_a_module_from_outside_is_planned_and_named(outside: str) -> None:
    usual = refimpl.plan("lenet", "vdnn-all")
    ours = refimpl.plan("lenet", f"vdnn-all, offload={outside}:BigMaps:600KiB")
    assert 0 < ours.counts.offloaded_bytes < usual.counts.offloaded_bytes
    assert ours.setup.name == "vdnn-all, offload=big-maps:600KiB" and ours.setup.slots["offload"] == "big-maps:600KiB"
    instance = refimpl.plan("lenet", f"vdnn-all, offload={outside}:HALF_A_MEGABYTE")
    assert instance.setup.slots["offload"] == "big-maps:512KiB"


@pytest.mark.parametrize("file", ["{}", "{}.py"])
def test_a_setup_from_outside_is_planned_with_other_modules(outside: str, file: str) -> None:
    ours = refimpl.plan("lenet", f"{file.format(outside)}:MINE, join=no")
    assert (
        ours.setup.name == "mine, join=no" and ours.setup.slots["offload"] == "big-maps:512KiB" and not ours.setup.join
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{}:MIN", ("MIN", "MINE")),
        ("{}_broken:MINE", (1, "ZeroDivisionError")),
        ("no_such_module:MINE", ("no_such_module", "vdnn-all", "dtr")),
        ("{}.py", ("names no setup", "{}.py:NAME")),
        ("{}_missing.py:MINE", ("there is no file", "{}_missing.py")),
        ("{}_needs:MINE", ("{}_needs imports no_such_package", "not installed")),
        ("vdnn-all baseline", ("vdnn-all and baseline", "one preset")),
    ],
)
def test_what_is_no_setup_is_one_line(outside: str, text: str, says: tuple[object, ...]) -> None:
    with raises_naming(SetupError, *(str(part).format(outside) for part in says)):
        setup(text.format(outside))


@pytest.mark.parametrize(
    "name",
    [
        "superneurons, prefetch=superneurons-ahead:5,late, allocator=block-heap:2KiB",
        "superneurons, pinned=vdnnpp-compressed:0.3,limit=1GiB, join=yes",
    ],
)
def test_a_setups_name_is_understood_as_that_setup(name: str) -> None:
    made = setup(name)
    assert made.name == name and setup(made.name) == made


def test_commas_separate_words_unless_they_are_a_modules() -> None:
    words = {"offload": "vdnnpp-conv:conv+fc,every=2", "join": "no"}
    assert parse("vdnn-all,offload=vdnnpp-conv:conv+fc,every=2,join=no") == ("vdnn-all", words)
    assert parse("") == ("baseline", {}) and parse("join=no vdnn-all") == ("vdnn-all", {"join": "no"})


def test_python_takes_the_names_of_the_command() -> None:
    program = refimpl.plan("lenet", "superneurons, prefetch=superneurons-ahead:5", "k40c", "1GiB")
    assert (program.network.name, program.machine.name, program.budget) == ("lenet", "k40c", 1 << 30)
    assert program.setup == refimpl.presets.superneurons(prefetch=refimpl.superneurons.Ahead(5))
    assert program.setup == refimpl.presets.superneurons(prefetch="superneurons-ahead:5")
    assert refimpl.plan("lenet", refimpl.presets.vdnn_all).setup.name == "vdnn-all"


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ((3,), "NetworkError", (3, "vgg16")),
        ((refimpl.Builder("mine", (1, 1, 8, 8)),), "NetworkError", ("mine", ".build()")),
        (("lenet", "vdn-all"), "SetupError", ("vdn-all", "vdnn-all")),
        (("lenet", "baseline", 3), "MachineError", ("3",)),
        (("lenet", "baseline", "titan-x", []), "BudgetError", ([],)),
    ],
)
def test_what_python_gets_wrong_is_one_line(arguments: tuple[Any, ...], error: str, says: tuple[object, ...]) -> None:
    with raises_naming(getattr(refimpl, error), *says):
        refimpl.plan(*arguments)


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("yes", bool, True), ("no", bool, False), ("none", int | None, None), ("3", int | None, 3),
        ("1.5KiB", int, 1536), ("0", float, 0.0), ("2.5", float, 2.5), ("a+b", tuple[str, ...], ("a", "b")),
        ("", tuple[int, ...], ()), ("any text", str, "any text"), ("late", Literal["early", "late"], "late"),
    ],
)  # fmt: skip
def test_a_value_is_read_by_its_type(text: str, kind: Any, value: Any) -> None:
    assert value_of(text, kind) == value


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        ("True", bool, "give yes or no"),
        ("9" * 20, int, "give a whole number of at least 0, or a size such as 512MiB"),
        ("inf", float, "give a number of at least 0"),
        ("soon", Literal["early", "late"], "give early or late"),
    ],
)
def test_a_value_of_another_type_says_what_to_give(text: str, kind: Any, says: str) -> None:
    with pytest.raises(ValueError) as error:
        value_of(text, kind)
    assert str(error.value) == says


def test_a_value_that_is_no_text_is_set_in_python_only() -> None:
    with pytest.raises(ValueError, match="Python"):
        value_of("3", dict)
