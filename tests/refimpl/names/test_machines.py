"""The machines that have a name, the device at hand, and what `refimpl list machines` shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernels.targets import gpu
from kernels.targets.cpu.threads import cores
from refimpl.machine import MACHINES, MachineError
from refimpl.machine import here as at_hand
from refimpl.names import machines
from refimpl.names.machines import like, listed, summary
from refimpl.names.machines import named as machine
from tests.gpu_device import BACKEND
from tests.refimpl.machine.conv_calls import passes
from tests.refimpl.machine.test_gpus import sources

GIB = 1 << 30
PAPERS = ("titan-x", "k40c", "titan-xp", "gtx-970")


def test_every_machine_is_found_by_its_name() -> None:
    assert list(MACHINES)[:5] == [*PAPERS, "h100"] and {"l4", "rtx-5090", "mi300x", "m2-max"} <= MACHINES.keys()
    for name, made in MACHINES.items():
        assert machine(name) is made and made.name == name
    assert machine("Titan_X") is machine("TITAN X") is MACHINES["titan-x"]


def test_a_machine_like_another_has_figures_of_its_own() -> None:
    made = like(" l4", memory="12GiB")
    assert (made.memory_bytes, made.flops) == (12 * GIB, MACHINES["l4"].flops)
    assert made.name == "l4 (memory 12GiB)" and like("l4").name == "l4"
    assert like(MACHINES["l4"], "mine", {"link": "measured: a try"}, link=9e9).name == "mine"
    with pytest.raises(MachineError, match="source"):
        like("l4", sources={"link": "a friend"}, link=9e9)


FILES = {
    "like = 'l4'\nmemory = '12GiB'\n[sources]\nmemory = 'measured: a try'\n": "my-card",
    "name = 'Mine'\nlike = 'l4'\nmemory = '12GiB'\n": "Mine",
    "memory = '12GiB'\nflops = '1TFLOP/s'\nbandwidth = '100GB/s'\nlink = '9GB/s'\nmultiprocessors = 4\n": "my-card",
}


@pytest.mark.parametrize(("text", "name"), FILES.items(), ids=["like", "named", "whole"])
def test_a_file_describes_a_machine(text: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / "my-card.toml"
    path.write_text(text, encoding="utf-8")
    made = machine(path)
    assert (made.name, made.memory_bytes) == (name, 12 * GIB)
    assert made.multiprocessors == (MACHINES["l4"].multiprocessors if "l4" in text else 4)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name = 3", "name is 3; give a text of one line"),
        ("sources = 'mine'", "sources is 'mine'; write a table [sources] with a line for each figure"),
        ("like = 'my-card.toml'", "like is 'my-card.toml'; give a machine's name, as in rtx-4090"),
        ("memory = '12GiB'", "my-card has no flops, bandwidth, link, multiprocessors; give them"),
    ],
)
def test_a_file_that_describes_no_machine_is_named(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "my-card.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(MachineError) as error:
        machine(path)
    assert str(error.value).startswith(f"{path}: {says}")


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(MachineError) as error:
        machine("titanx")
    assert str(error.value) == "there is no machine 'titanx'; did you mean titan-x?"


# -- the device at hand ------------------------------------------------------------------------------------------------


def test_here_is_the_cpu_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "why_not", lambda: "no CUDA driver")
    made = machine("here")
    assert made == at_hand.rough_cpu() and made.name == "here" and made.catalogue == "own"
    assert made.multiprocessors == cores() >= 1
    assert "CPU" in made.sources[0].where and sources(made)["flops"] == "assumed"
    assert made.memory_bytes >= GIB
    for call in passes((4, 3, 16, 16), 8, (3, 3), pad=(1, 1)):
        assert made.choices(call)[-1].workspace_bytes == 0  # the naive one


@pytest.mark.gpu
def test_here_is_the_gpu_where_there_is_one() -> None:
    made = machine("here")
    assert (gpu.device_name() in made.sources[0].where) == (BACKEND == "cuda")
    if BACKEND == "emulated":  # it has no speed of its own: "here" is the CPU
        return
    assert made.memory_bytes > GIB and made.flops > 1e12 and made.bandwidth > 1e11


def test_machines_are_attributes_of_their_module() -> None:
    assert machines.titan_x is MACHINES["titan-x"] and machines.a100_40g is MACHINES["a100-40g"]
    assert {"titan_x", "rtx_4090", "here", "named", "like"} <= set(dir(machines))
    assert len(dir(machines)) == len(MACHINES) + 3
    with pytest.raises(AttributeError, match="no machine 'titanic'; there are a10, a100_40g, .*, here, .*, v100$"):
        _ = machines.titanic
    assert [one.name for one in listed(["l4", "t4"])] == ["l4", "t4"]


def test_the_summary_has_a_row_a_machine() -> None:
    rows = summary()
    assert [row["name"] for row in rows] == [*MACHINES, "here"]
    assert all(set(row) == set(rows[0]) and row["sources"] for row in rows)
    json.dumps(rows)
    assert [row["name"] for row in summary(with_here=False)] == list(MACHINES)
