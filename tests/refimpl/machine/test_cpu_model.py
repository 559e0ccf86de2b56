"""The CPU's machine: costs that are measured once, and seconds that follow from them.  Only the campaign measures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import pytest

from kernels.targets import cpu, gpu
from kernels.targets.launch import KernelLaunch
from refimpl.machine import cpu_costs, cpu_model, here
from refimpl.machine.catalogues import options
from refimpl.machine.cpu_model import CalibratedCpu, Units, algorithm_arguments, call_arguments, launches
from refimpl.names import machines as named
from refimpl.names import networks as zoo
from refimpl.names.machines import named as machine
from refimpl.names.presets import setup
from refimpl.network import Network
from refimpl.planner import Launch, plan
from refimpl.studies.bench.training import NETWORKS
from refimpl.text import MachineError
from tests.matrix import more
from tests.messages import raises_naming
from tests.refimpl.machine import cpu_campaign, cpu_reference


def every_launch(network: Network) -> Iterator[KernelLaunch]:
    """Every launch of training with a cost of its own, convolutions by every algorithm; no array is touched."""
    for step in network.steps:
        for call in step.calls:
            for option in options("own", call) if call.choosable else (None,):
                chosen = algorithm_arguments(option.algorithm, option.workspace_bytes) if option else {}
                made = launches(call.function, call_arguments(call) | chosen)
                yield from filter(cpu_costs.has_cost, made)


def made_up() -> dict[str, Units]:
    """A nanosecond for each unit of everything that has a cost."""
    found: dict[str, Units] = {
        cpu_model.LAUNCH: (1e-5,), cpu_model.SHARED: (2e-5,), cpu_model.FETCHED: (1e-12,),
        cpu_model.COPY: (2e-6, 1e-10),
    }  # fmt: skip
    strided = [network for network in cpu_reference.networks(gradients=1) if network.name == "strided"]
    for network in (*cpu_costs.networks(), *strided[:1]):
        for launched in every_launch(network):
            name, counted = cpu_model.units(launched)
            found[name] = tuple(1e-9 for _ in counted)
    return found


@pytest.fixture(scope="module")
def costs() -> dict[str, Units]:
    return made_up()


def calibrated(costs: dict[str, Units], cores: int = 2) -> CalibratedCpu:
    return cpu_model.with_costs(replace(here.rough_cpu(), multiprocessors=cores), costs)


@pytest.mark.parametrize("name, batch", [("lenet", 2), ("tiny-resnet", 4), more("tiny-vgg", 2), more("googlenet", 1)])
def test_every_kernel_that_training_launches_has_a_cost(costs: dict[str, Units], name: str, batch: int) -> None:
    for launched in every_launch(zoo.build(name, batch)):
        kernel, counted = cpu_model.units(launched)
        assert kernel in costs, launched.kernel.name
        assert len(counted) == len(costs[kernel]) and all(count >= 0 for count in counted) and max(counted) > 0


def test_a_program_is_planned_and_simulated_with_the_costs(costs: dict[str, Units]) -> None:
    made = calibrated(costs)
    program = plan(zoo.build("tiny-resnet", 4), setup("baseline"), made, 1 << 30)
    launched = [one for one in program.instructions if isinstance(one, Launch)]
    slower = plan(program.network, setup("baseline"), calibrated({n: tuple(2 * c for c in v) for n, v in costs.items()}), 1 << 30)  # noqa: E501 # fmt: skip
    assert len(launched) > 20 and program.simulate().seconds > len(launched) * made.launch_seconds
    assert slower.simulate().seconds > 1.9 * program.simulate().seconds
    for call in (one.call for one in launched if one.call.choosable):
        seconds = [choice.seconds for choice in made.choices(call)]
        assert seconds == sorted(seconds) and seconds[0] == made.seconds(call)


def test_fewer_blocks_than_cores_leave_cores_idle(costs: dict[str, Units]) -> None:
    """backward_filter without a workspace has a block for each tile of the weights alone."""
    call = next(
        call for step in zoo.build("lenet", 16).steps for call in step.calls if call.function == "conv.backward_filter"
    )
    seconds = {
        cores: {(c.algorithm, c.workspace_bytes > 0): c.seconds for c in calibrated(costs, cores).choices(call)}
        for cores in (1, 8)
    }
    alone, split = ("implicit_gemm", False), ("implicit_gemm", True)
    assert seconds[8][alone] > 1.9 * seconds[1][alone]  # four tiles
    assert seconds[8][split] == pytest.approx(seconds[1][split], rel=0.2)


def test_costs_are_recovered_from_what_was_measured() -> None:
    units = [(1000.0, 10.0), (1000.0, 500.0), (4000.0, 80.0), (30.0, 400.0)]
    found = cpu_reference.fitted([(u, 3e-9 * u[0] + 5e-8 * u[1]) for u in units])
    assert found == pytest.approx((3e-9, 5e-8))
    assert min(cpu_reference.fitted([((1.0, 1.0), 1.0), ((2.0, 1.0), 1.5), ((1.0, 5.0), 0.1)])) >= 0


# -- few kernels are measured ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_reference_has_the_kernels_of_every_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that is new, or has other units, needs `python -m tests.refimpl.machine.cpu_reference`."""
    counts = {name: len(each) for name, each in cpu_costs.reference().items()}
    networks, met = cpu_reference.networks(gradients=500), {name: counts[name] for name in cpu_costs.OF_ANY_KERNEL}
    calls = {call.key: call for each in networks for step in each.steps for call in step.calls}
    for avx512 in (True, False):
        monkeypatch.setattr(cpu, "has_avx512", lambda has=avx512: has)
        ways = (way for call in calls.values() for way in cpu_costs.ways(call))
        every = (one for call, chosen in ways for one in launches(call.function, call_arguments(call) | chosen))
        met |= {name: len(counted) for name, counted in map(cpu_model.units, filter(cpu_costs.has_cost, every))}
    assert met == counts


def test_a_kernel_without_a_cost_is_an_error(costs: dict[str, Units]) -> None:
    (relu,) = launches("relu.forward", {"x": cpu_model.empty((32,)), "y": cpu_model.empty((32,))})
    without = {name: cost for name, cost in costs.items() if name != "relu_forward"}
    with raises_naming(MachineError, "relu_forward"):
        calibrated(without).launch_cost(relu)


def test_every_measured_kernel_is_among_the_cases() -> None:
    """The rungs of the matrix product depend on whether the CPU has AVX-512."""
    found = {name for name, _ in cpu_costs.cases()}
    assert found <= set(cpu_costs.MEASURED) <= found | {"gemm_vector_rows_nn", "gemm_register_2d"}
    assert set(cpu_costs.STAND_INS.values()) <= set(cpu_costs.MEASURED)


def test_a_kernel_that_is_not_measured_is_as_much_slower_as_the_one_most_like_it() -> None:
    known = cpu_costs.reference()
    slower = {name: 2.0 if name.startswith("conv") else 3.0 for name in cpu_costs.MEASURED}
    cases = {name: ((3.0, 5.0, 7.0, 9.0)[: len(known[name])], factor) for name, factor in slower.items()}
    found = cpu_costs.modelled(
        {name: [(n, f * cpu_model.seconds_of(known[name], n))] for name, (n, f) in cases.items()}
    )
    assert found.keys() == known.keys() - cpu_costs.OF_ANY_KERNEL
    for name, factor in (
        ("conv_gather_by_tap", 2.0),
        ("conv_gather_by_table", 2.0),
        ("relu_forward", 3.0),
        ("conv_forward", 3.0),
    ):
        assert found[name] == pytest.approx([factor * cost for cost in known[name]])


def test_every_byte_of_a_launch_is_fetched(costs: dict[str, Units]) -> None:
    """What a launch reads was written long ago, or by another core."""
    x, y = cpu_model.empty((1 << 20,)), cpu_model.empty((1 << 20,))
    (relu,) = launches("relu.forward", {"x": x, "y": y})
    near, far = (calibrated(costs | {cpu_model.FETCHED: (seconds,)}) for seconds in (0.0, 1e-11))
    assert far.launches_cost([relu]) - near.launches_cost([relu]) == pytest.approx(1e-11 * (x.nbytes + y.nbytes))
    assert far.bandwidth < near.bandwidth
    (in_place,) = launches("relu.forward", {"x": x, "y": x})
    assert cpu_model.fetched_bytes([in_place]) == x.nbytes


def test_a_kernel_that_is_launched_for_some_images_at_a_time_fetches_each_byte_once() -> None:
    """A launch gets the arrays from its images on; of a large workspace each launch uses all."""
    call = next(
        call for step in zoo.build("tiny-resnet", 64).steps for call in step.calls if call.function == "conv.forward"
    )
    given = call_arguments(call)

    def fetched(workspace_bytes: int) -> tuple[int, int]:
        chosen = algorithm_arguments("vector_direct", workspace_bytes)
        launched = launches(call.function, given | chosen)
        return len(launched), cpu_model.fetched_bytes(launched, chosen["workspace"])

    sizes = [one.workspace_bytes for one in options("own", call) if one.algorithm == "vector_direct"]
    few, many = fetched(max(sizes)), fetched(min(sizes))
    assert few[0] < many[0] and few[1] == many[1] >= given["x"].nbytes + given["y"].nbytes


# -- measured once -----------------------------------------------------------------------------------------------------


@pytest.fixture
def measuring(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, costs: dict[str, Units]) -> list[int]:
    """A cache of its own, no GPU, and a calibration that takes no time; how often it ran."""
    ran: list[int] = []

    def calibrate(watch: cpu_costs.CalibrationProgress, **how: object) -> dict[str, Units]:
        ran.append(1)
        assert ("counts" in how) == here.is_busy(), "the least turn counts where the machine is busy"
        return costs

    monkeypatch.setenv("REFIMPL_CALIBRATE", "1")
    monkeypatch.setenv("REFIMPL_CACHE", str(tmp_path))
    monkeypatch.setattr(gpu, "why_not", lambda: "no CUDA driver")
    monkeypatch.setattr(cpu_costs, "calibrate", calibrate)
    monkeypatch.setattr(cpu_costs, "_costs", [])
    monkeypatch.setattr(here, "load_average", lambda: 0.0)
    return ran


def test_here_is_measured_on_its_first_use_and_kept_for_later_processes(
    measuring: list[int], costs: dict[str, Units], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not isinstance(named.at_hand(measure=False), CalibratedCpu) and measuring == []
    first = machine("here")
    assert isinstance(first, CalibratedCpu) and measuring == [1] and "measured, once" in capsys.readouterr().err
    monkeypatch.setattr(cpu_costs, "_costs", [])  # another process
    assert machine("here") == named.at_hand(measure=False) == first and measuring == [1]
    assert prod(cpu_costs.read_costs()["elementwise_copy"]) == prod(costs["elementwise_copy"])  # type: ignore[index]
    monkeypatch.setenv("REFIMPL_CALIBRATE", "0")
    assert machine("here") == here.rough_cpu()


def test_what_a_busy_machine_measured_is_kept_apart_said_and_measured_again(
    measuring: list[int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def another_process(load: float) -> str:
        monkeypatch.setattr(cpu_costs, "_costs", [])
        monkeypatch.setattr(here, "load_average", lambda: load)
        assert isinstance(machine("here"), CalibratedCpu)
        return capsys.readouterr().err

    busy = 100.0
    assert cpu_costs.BUSY in another_process(busy) and measuring == [1]
    assert cpu_costs.read_costs() is None and cpu_costs.read_costs(busy=True) is not None
    assert another_process(busy) == f"{cpu_costs.BUSY}\n" and measuring == [1]
    assert cpu_costs.BUSY not in another_process(0.0) and measuring == [1, 1]
    assert cpu_costs.read_costs() is not None and cpu_costs.read_costs(busy=True) is None
    assert another_process(busy) == "" and measuring == [1, 1], "the quiet machine's calibration is kept"


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"launch": 1}', '{"launch": [1e-6]}', '{"launch": [-1]}', '{"launch": [NaN]}']
)
def test_a_damaged_calibration_is_measured_again(measuring: list[int], content: str) -> None:
    machine("here")
    file = cpu_costs.costs_path()
    assert file is not None and json.loads(file.read_text())[cpu_model.LAUNCH]
    file.write_text(content)
    assert cpu_costs.read_costs() is None


@pytest.mark.parametrize(
    "wrong",
    [
        {cpu_model.LAUNCH: [-1.0]},
        {cpu_model.SHARED: []},
        {cpu_model.COPY: [1e-6, 0.0]},
        {"elementwise_copy": [1e-9] * 7},
        dict.fromkeys(sorted(cpu_costs.PRODUCTS)),
    ],
    ids=str,
)
def test_a_calibration_with_one_wrong_cost_is_measured_again(measuring: list[int], wrong: dict[str, Any]) -> None:
    machine("here")
    file = cpu_costs.costs_path()
    assert file is not None
    costs = json.loads(file.read_text()) | wrong
    file.write_text(json.dumps({name: cost for name, cost in costs.items() if cost is not None}))
    assert cpu_costs.read_costs() is None


def test_costs_of_other_kernels_are_another_calibration(
    measuring: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = cpu_costs.costs_path()
    monkeypatch.setattr(cpu_costs, "REFERENCE", tmp_path / "other.json")  # one of the files that the name is made of
    cpu_costs.REFERENCE.write_text("{}")
    assert cpu_costs.costs_path() != before


@pytest.mark.campaign
@pytest.mark.parametrize("name, batch", NETWORKS)
def test_here_is_as_fast_as_it_says(monkeypatch: pytest.MonkeyPatch, name: str, batch: int) -> None:
    """`simulate` is within a quarter, and the choices of algorithms within a tenth of the best."""
    monkeypatch.setenv("REFIMPL_CALIBRATE", "1")
    row = cpu_campaign.measure(name, batch)
    assert 0.75 < row.error < 1.25 and row.lost < 1.1, row
