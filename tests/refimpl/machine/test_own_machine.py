"""A machine of one's own: figures over another machine's, a source of each, and slips of units that are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import refimpl
from refimpl import cli
from refimpl.machine import MACHINES, MachineError
from refimpl.machine.model import FIGURES
from refimpl.machine.own_machine import NAMES, QUANTITIES, figure_rows, number
from refimpl.names.machines import like, named

EXAMPLES = sorted((Path(__file__).resolve().parents[3] / "docs" / "machines").glob("*.toml"))
Write = Callable[[str], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to_file(text: str) -> str:
        path = tmp_path / "my-card.toml"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return to_file


def test_the_figures_that_are_given_and_the_others() -> None:
    card, base = like("rtx-4090", memory="16GiB", link="12GB/s"), MACHINES["rtx-4090"]
    assert card.memory_bytes == 16 << 30 and card.link == 12e9 and card.flops == base.flops
    assert card.name == "rtx-4090 (memory 16GiB, link 12GB/s)"
    copies = [machine.copy_seconds(1 << 30, "out") - machine.copy_start_seconds for machine in (card, base)]
    assert copies[0] / copies[1] == pytest.approx(base.link / 12e9)
    changed = like("titan-x", efficiency={"forward": 0.5}, catalogue="own", launch="5us")
    assert changed.efficiency.forward == 0.5 and changed.efficiency.backward == MACHINES["titan-x"].efficiency.backward
    assert changed.catalogue == "own" and changed.launch_seconds == pytest.approx(5e-6)


@pytest.mark.parametrize("what", QUANTITIES)
def test_a_value_is_read_as_it_is_written(what: str) -> None:
    shown = {name: value for name, value, _, _ in figure_rows(MACHINES["h100"])}
    field = QUANTITIES[what].field
    value = getattr(MACHINES["h100"], field)
    given: list[dict[str, Any]] = [{what: shown[what]}, {what: value}]
    assert [getattr(like("h100", **one), field) for one in given] == pytest.approx([value, value])


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"memory": "16TB"}, "memory is '16TB', which no machine has; did you mean 16GB?"),
        ({"memory": 0}, "memory is 0; give a number above 0, as in 16GiB"),
        ({"memory": "16Gb"}, "memory is '16Gb', in bits; an eighth of it is bytes, as in 16GiB"),
        ({"link": "12Gb/s"}, "link is '12Gb/s', in bits; an eighth of it is bytes, as in 12GB/s"),
        ({"link": "12GB"}, "link is '12GB'; write it as in 12GB/s"),
        ({"bandwidth": "nan GB/s"}, "bandwidth is 'nan GB/s'; give a number above 0, as in 960GB/s"),
        ({"multiprocessors": 1.5}, "multiprocessors is 1.5; give a whole number, as in 96"),
        ({"lnk": "12GB/s"}, "a machine has no 'lnk'; did you mean link?"),
        ({"efficiency": {"forward": 1.5}}, "efficiency forward is 1.5; give a share above 0 and at most 1"),
        ({"efficiency": {"ford": 0.5}}, "there is no efficiency 'ford'; there are forward, backward, products"),
        ({"catalogue": "cudnn"}, "there is no catalogue 'cudnn'; did you mean cudnn5?"),
    ],
)
def test_nonsense_is_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(MachineError) as error:
        like("rtx-4090", **given)
    assert str(error.value).startswith(says) and "\n" not in str(error.value)


@pytest.mark.parametrize("what", QUANTITIES)
def test_a_figure_is_within_what_machines_have(what: str) -> None:
    """Both ends are, and what is a little beyond either is not; its example is."""
    least, most = QUANTITIES[what].least, QUANTITIES[what].most
    assert (number(what, least), number(what, most)) == (least, most)
    assert least <= number(what, QUANTITIES[what].example) <= most
    for beyond in (0.9 * least, 1.1 * most):
        with pytest.raises(MachineError, match="which no machine has|above 0"):
            number(what, beyond)


@pytest.mark.parametrize(
    ("what", "written", "value"),
    [
        ("memory", "1.5 GiB", 3 << 29), ("memory", "16 GB", 16 * 10**9), ("memory", "2_000_000KiB", 2_000_000 << 10),
        ("flops", "2e3 gflop/s", None), ("flops", "2e3GFLOPS", 2e12), ("flops", "0.5PFLOP/s", 5e14),
        ("launch", "4µs", 4e-6), ("launch", "4 us", 4e-6), ("launch", "0.004ms", 4e-6), ("launch", "4000ns", 4e-6),
        ("link", "12000MB/s", 12e9), ("link", "12e9", 12e9), ("multiprocessors", "96", 96), ("memory", "12gb", None),
    ],
)  # fmt: skip
def test_a_number_is_read_with_its_prefix(what: str, written: str, value: float | None) -> None:
    if value is None:
        with pytest.raises(MachineError, match="write it as in"):
            number(what, written)
    else:
        assert number(what, written) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('like = "rtx4090"', "there is no machine 'rtx4090'; did you mean rtx-4090?"),
        ('like = "other.toml"', "like is 'other.toml'; give a machine's name, as in rtx-4090"),
        ('memory = "2GiB"', "my-card has no flops, bandwidth, link, multiprocessors; give them"),
        ('like = "l4"\nsources = 3', "sources is 3; write a table [sources]"),
        (
            'like = "l4"\nlink = "9GB/s"\n[sources]\nlnk = "measured: x"',
            "sources has 'lnk', which is not given; did yo",
        ),
        (
            'like = "l4"\nlink = "9GB/s"\n[sources]\nlink = "a friend"',
            "the source of link is 'a friend'; write data sh",
        ),
        ('like = "l4"\nlink = nan', "link is nan; give a number above 0"),
        ('like = "l4"\nname = ""', "name is ''; give a text of one line"),
    ],
)
def test_a_file_that_is_wrong_is_named(write: Write, text: str, says: str) -> None:
    path = write(text)
    with pytest.raises(MachineError) as error:
        named(path)
    assert str(error.value).startswith(f"{path}: {says}")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_figure_of_an_example_has_a_source(path: Path) -> None:
    machine = named(path)
    assert machine.name == path.stem and "given" not in {source.how for source in machine.sources}
    assert sorted(field for source in machine.sources for field in source.of) == sorted(FIGURES)
    program = refimpl.plan("tiny-vgg", "vdnn-all", str(path), "8MiB")
    assert program.machine == machine


def test_an_unsourced_figure_says_so_and_anothers_is_assumed() -> None:
    rows = {name: (how, where) for name, _, how, where in figure_rows(like("rtx-4090", link="12GB/s", launch="4us"))}
    assert rows["link"] == rows["launch"] == ("given", "without a source")
    assert rows["flops"] == ("assumed", "rtx-4090's (data sheet: GeForce RTX 4090; compute capability 8.9)")
    assert set(rows) == {*NAMES} - {"catalogue"}


def test_the_command_shows_sources(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(next(path for path in EXAMPLES if path.stem == "apple-m2-max"))
    assert cli.main(["list", "machines", path, "--sources"]) == 0
    shown = capsys.readouterr().out
    assert "21845MiB" in shown and "ollama/ollama#434" in shown
    assert cli.main(["list", "machines", path, "l4"]) == 0
    shown = capsys.readouterr().out
    assert "apple-m2-max" in shown and "titan-x" not in shown


@pytest.mark.parametrize(
    "words",
    ["plan lenet --policy baseline", "compare lenet --with baseline",
     "export lenet --policy vdnn-all --out e.py", "view lenet --policy baseline --out v.html"],
)  # fmt: skip
def test_commands_take_the_file(
    words: str, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write('like = "rtx-4090"\nmemory = "5GiB"')
    assert cli.main([*words.split(), "--batch", "2", "--machine", path]) == 0
    written = "".join(one.read_text() for one in tmp_path.iterdir() if one.suffix != ".toml")
    assert "my-card" in capsys.readouterr().out + written
