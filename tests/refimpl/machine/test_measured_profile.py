"""Profiles: keys, the file and its refusals, the machine that a profile is, and the making of one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.fast import conv
from refimpl.machine import Choice, MachineError
from refimpl.machine.convolution import Convolution
from refimpl.machine.devices import Cpu, Device, device_at_hand
from refimpl.machine.measure import different_calls, measure, time_bandwidth, time_copies
from refimpl.machine.measured_profile import Copies, Profile, as_machine, key, load, machine_from_profile
from refimpl.names import networks as zoo
from refimpl.names.machines import named as machine
from refimpl.network import Builder, Network
from tests.gpu_device import BACKEND
from tests.messages import raises_naming
from tests.refimpl.machine.conv_calls import passes


def small(batch: int = 2) -> Network:
    """One of each kind that matters: a choice, labels, settings, equal calls, a call in place."""
    b = Builder("small", (batch, 2, 8, 8))
    b.conv(4, 3, pad=1)
    b.relu()
    b.conv(4, 3, pad=1)
    b.relu()
    b.conv(4, 3, pad=1)
    b.dropout(0.5)
    b.pool(2)
    b.fc(3)
    b.softmax()
    return b.build()


class Patient(Cpu):
    """A CPU whose clock always says the same of the same run: every kernel really runs."""

    def __init__(self, free_bytes: int = 1 << 26) -> None:
        super().__init__()
        self.name, self.free_bytes, self.ran = "patient", free_bytes, 0

    def seconds(self, run: Callable[[], None], times: int) -> float:
        self.ran += times
        for _ in range(times):
            run()
        return 0.25


@pytest.fixture(scope="module")
def profile() -> Profile:
    return measure(small(), Patient())


# -- keys --------------------------------------------------------------------------------------------------------------


def test_a_key_is_function_shapes_and_options() -> None:
    forward = passes((2, 3, 8, 9), 4, (3, 2), (2, 1), (1, 0))[0]
    assert key(forward) == "conv.forward b=None x=2x3x8x9 w=4x3x3x2 y=2x4x4x8 stride=2x1 pad=1x0"


def test_a_key_names_a_new_option_only_where_it_is_used() -> None:
    """So that profiles of before are read as before; groups show in the shape of w."""
    forward = passes((2, 6, 8, 9), 4, (3, 2), dilation=(2, 1), groups=2)[0]
    assert key(forward) == "conv.forward b=None x=2x6x8x9 w=4x3x3x2 y=2x4x4x8 stride=1x1 pad=0x0 dilation=2x1"
    b = Builder("net", (2, 3, 8, 8))
    plain, clipped = b.relu(), b.relu(at_most=6)
    pools = b.pool(2, mode="average"), b.pool(2, mode="average", count_padding=False)
    assert plain.options == {} and clipped.options == {"at_most": 6.0}
    assert ["count_padding" in layer.options for layer in pools] == [False, True]


# -- the file ----------------------------------------------------------------------------------------------------------

name = st.text(min_size=1, max_size=6)
positive = st.floats(1e-12, 1e12, allow_nan=False)
choice = st.builds(Choice, st.sampled_from(sorted(conv.ALGORITHMS)), st.integers(0, 2**40), positive)
profiles = st.builds(
    Profile,
    device=name,
    kind=st.sampled_from(("cpu", "gpu")),
    date=st.dates().map(str),
    network=name,
    batch=st.integers(1, 1000),
    memory_bytes=st.integers(1, 2**48),
    flops=positive,
    bandwidth=positive,
    copies=st.fixed_dictionaries({way: st.builds(Copies, positive, positive) for way in ("out", "in")}),
    calls=st.dictionaries(name, positive, max_size=5),
    choices=st.dictionaries(
        name,
        st.lists(choice, min_size=1, max_size=3, unique_by=lambda c: c.seconds).map(
            lambda made: tuple(sorted(made, key=lambda c: c.seconds))
        ),
        max_size=3,
    ),
)


@settings(max_examples=10)
@given(profiles)
def test_what_is_saved_is_loaded_to_the_last_bit(tmp_path_factory: pytest.TempPathFactory, drawn: Profile) -> None:
    path = tmp_path_factory.getbasetemp() / "drawn.json"
    drawn.save(path)
    assert load(path) == drawn
    assert [found.name for found in path.parent.glob(".*drawn*")] == []


def test_a_measured_profile_is_loaded_as_it_was(profile: Profile, tmp_path: Path) -> None:
    profile.save(tmp_path / "here.json")
    assert load(tmp_path / "here.json") == profile
    made = machine(str(tmp_path / "here.json"))
    assert made == as_machine(profile, str(tmp_path / "here.json")) and made.name == "here.json"
    assert all(word in made.sources[0].where for word in ("patient", "small, batch 2"))


def broken(change: Callable[[dict[str, Any]], object]) -> Callable[[str], str]:
    def text(whole: str) -> str:
        found = json.loads(whole)
        change(found)
        return json.dumps(found)

    return text


def first(table: dict[str, Any]) -> str:
    return next(iter(table))


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda whole: whole[: len(whole) // 2], "is cut off or damaged, it is not JSON"),
        (lambda whole: "\0garbage", "is cut off or damaged, it is not JSON"),
        (lambda whole: "[" * 100_000, "is cut off or damaged, it is not JSON"),
        (lambda whole: '{"format": "something else"}', "is not a profile"),
        (broken(lambda p: p.update(version=2)), "has version 2 of the format, this program reads 1"),
        (broken(lambda p: p.pop("device")), "is damaged: 'device' is missing"),
        (broken(lambda p: p.update(memory_bytes=0)), "is damaged: memory_bytes is 0, too small"),
        (broken(lambda p: p.update(kind="tpu")), "is damaged: kind is 'tpu', not cpu or gpu"),
        (broken(lambda p: p.update(batch=2.5)), "is damaged: batch is 2.5, not a whole number"),
        (broken(lambda p: p.update(bandwidth=float("inf"))), "is damaged: bandwidth is inf, too large"),
        (broken(lambda p: p["copies"]["in"].update(bytes_per_second=1e-300)), "copies in is 1e-300, too small"),
        (broken(lambda p: p["choices"][first(p["choices"])][0].update(algorithm=7)), "algorithm is 7, not a text"),
        (broken(lambda p: p.update(calls=[1])), "is damaged: "),
        (broken(lambda p: p["calls"].update({first(p["calls"]): float("nan")})), "is nan, not a number"),
        (broken(lambda p: p["choices"].update({first(p["choices"]): []})), "has no algorithm"),
    ],
)
def test_a_damaged_file_is_refused_in_one_line(
    profile: Profile, tmp_path: Path, damage: Callable[[str], str], says: str
) -> None:
    path = tmp_path / "p.json"
    profile.save(path)
    path.write_text(damage(path.read_text(encoding="utf-8")), encoding="utf-8")
    with pytest.raises(MachineError) as error:
        machine_from_profile(path)
    message = str(error.value)
    assert message.startswith(str(path)) and says in message and "\n" not in message
    assert message.endswith("make one with: refimpl profile NETWORK --batch N --out FILE.json")


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    with raises_naming(MachineError, "absent.json"):
        machine(str(tmp_path / "absent.json"))
    (tmp_path / "binary.json").write_bytes(bytes(range(128, 256)))
    with raises_naming(MachineError, "utf-8", "JSON", "0x80"):
        machine(str(tmp_path / "binary.json"))


# -- the machine -------------------------------------------------------------------------------------------------------


def test_the_machine_knows_every_call_of_its_network(profile: Profile) -> None:
    made = as_machine(profile)
    network = small()
    for call in (call for step in (*network.steps, *network.inference().steps) for call in step.calls):
        assert made.seconds(call) == 0.25
        if call.choosable:
            choices = made.choices(call)
            assert min(choice.workspace_bytes for choice in choices) == 0
            assert all(made.seconds(call, choice) == choice.seconds for choice in choices)
    assert made.copy_seconds(1 << 20, "out") > made.copy_seconds(1 << 10, "out") > 0


def test_a_profile_of_another_network_says_which_call_it_lacks(profile: Profile) -> None:
    made = as_machine(profile, "mine.json")
    other = [call for step in small(batch=3).steps for call in step.calls]
    with pytest.raises(MachineError) as error:
        made.choices(other[0])
    assert str(error.value) == (
        "mine.json is a profile of small, batch 2 and has no conv.forward b=4 x=3x2x8x8 w=4x2x3x3 y=3x4x8x8 stride=1x1 "
        "pad=1x1; profile the network you mean: refimpl profile NETWORK --batch N --out FILE.json"
    )
    with raises_naming(MachineError, "relu.forward", "x=3x4x8x8", "y==x"):
        made.seconds(other[1])


# -- making one --------------------------------------------------------------------------------------------------------


def test_every_algorithm_of_every_call_is_measured(profile: Profile) -> None:
    calls = different_calls(small())
    assert set(profile.calls) | set(profile.choices) == set(calls)
    for name, choices in profile.choices.items():
        shape = Convolution.of(calls[name])
        serves = conv.serves(shape.x_shape, shape.w_shape, **shape.walk)
        serving = {algorithm for algorithm, passes in serves.items() if passes[shape.pass_] == "yes"}
        assert {choice.algorithm for choice in choices} == serving


def test_time_that_is_up_ends_the_turns_and_not_the_first() -> None:
    hurried, patient = Patient(), Patient()
    short = measure(small(), hurried, turns=4, limit_seconds=0.0)
    measure(small(), patient, turns=4)
    assert set(short.calls) == {name for name, call in different_calls(small()).items() if not call.choosable}
    # what a model says takes longer than no time at all is left out, one algorithm without workspace is not
    assert all([choice.workspace_bytes for choice in choices] == [0] for choices in short.choices.values())
    copies = Patient()
    time_copies(copies, "out"), time_copies(copies, "in"), time_bandwidth(copies)
    assert patient.ran - copies.ran > 3 * (hurried.ran - copies.ran) > 0


def test_a_network_without_room_is_refused() -> None:
    with raises_naming(MachineError, 2, 5120):
        measure(small(), Patient(free_bytes=1000))


def test_the_cpu_at_hand_is_measured() -> None:
    found = measure(small(), Cpu(), turns=2, limit_seconds=0.2)
    assert found.calls and min(found.calls.values()) > 0
    assert found.kind == "cpu" and "cores" in found.device
    assert found.bandwidth > 0 and as_machine(found).link > 0


@pytest.mark.gpu
def test_the_gpu_at_hand_is_measured() -> None:
    device: Device = device_at_hand()
    if BACKEND == "emulated":
        assert isinstance(device, Cpu)  # an emulated GPU is never measured
        return
    found = measure(zoo.build("tiny-inception", 8), device, turns=2)
    assert found.kind == "gpu" and found.device == device.name
    assert all(0 < seconds < 1 for seconds in found.calls.values())
    assert found.bandwidth > 1e10 and 1e9 < as_machine(found).link < 1e12


def test_a_profile_that_cannot_be_written_says_so(profile: Profile, tmp_path: Path) -> None:
    with raises_naming(MachineError, "folder/p.json"):
        profile.save(tmp_path / "no such folder" / "p.json")


def test_a_profile_has_no_seconds_of_another_catalogue(profile: Profile) -> None:
    made = as_machine(profile, "mine.json")
    assert made.with_catalogue("own") is made
    with raises_naming(MachineError, "mine.json", "cudnn4"):
        made.with_catalogue("cudnn4")
