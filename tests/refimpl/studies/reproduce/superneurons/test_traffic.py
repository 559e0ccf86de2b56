"""What the cache keeps off the link: the paper's table, every reading of it, and traffic as the pool grows."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings

from refimpl.machine import MACHINES
from refimpl.names.networks import build
from refimpl.network import Network
from refimpl.planner import CopyIn, CopyOut, Program, Setup, plan
from refimpl.slots.baseline import NoRecompute
from refimpl.studies.reproduce.evaluation import moved_bytes, out_bytes
from refimpl.studies.reproduce.superneurons import published, traffic
from refimpl.studies.reproduce.superneurons.traffic import (
    CACHE_ALONE,
    EVERYTHING,
    OFFLOAD,
    TrafficRow,
    by_budget,
)
from tests.refimpl.drawn_networks import networks
from tests.refimpl.modules import LastUsed, OffloadSome, PrefetchAhead, least_plan, machine, setup

pytestmark = pytest.mark.superneurons

MIB = 1 << 20
GB = 10**9
PLENTY = 1 << 50  #: bytes


@pytest.fixture(scope="module")
def rows() -> dict[int, TrafficRow]:
    """Batch → its row."""
    return {row.batch: row for row in traffic.rows()}


# -- the paper's table -------------------------------------------------------------------------------------------------


def recounted(program: Program, kind: type[CopyOut | CopyIn]) -> int:
    """The slow way: every copy, but of the batch and the results."""
    ours = (program.network.input, program.network.labels, *program.pinned)
    return sum(i.nbytes for i in program.instructions if isinstance(i, kind) and i.tensor not in ours)


@pytest.mark.slow
@settings(max_examples=20)
@given(networks())
def test_what_moved_is_what_the_instructions_copy(network: Network) -> None:
    wanted = setup(cache=LastUsed(), offload=OffloadSome(0.5), prefetch=PrefetchAhead(2))
    program = least_plan(network, wanted, machine())
    assert out_bytes(program) == recounted(program, CopyOut)
    assert moved_bytes(program) == recounted(program, CopyOut) + recounted(program, CopyIn)


def test_there_is_a_row_for_every_published_batch(rows: dict[int, TrafficRow]) -> None:
    assert tuple(rows) == tuple(published.WITHOUT_CACHE) == tuple(published.WITH_CACHE) == traffic.BATCHES
    assert {row.budget_bytes for row in rows.values()} == {12 << 30}


def test_whoever_watches_is_told_every_network() -> None:
    told: list[str] = []
    next(traffic.rows(told.append))
    assert told == ["alexnet(256)"]


def test_without_the_cache_checkpoints_leave_and_come_back(rows: dict[int, TrafficRow]) -> None:
    """By hand: five CONVs' outputs and two FCs', FC3's gap being empty.  Recomputation changes what is late: FC2's."""
    alexnet = build("alexnet:superneurons", 1)
    image = sum(layer.y.nbytes for layer in alexnet.layers if layer.kind == "conv" or layer.name in ("FC1", "FC2"))
    assert image == 4 * (96 * 55**2 + 256 * 27**2 + (384 + 384 + 256) * 13**2 + 2 * 4096)
    for batch, row in rows.items():
        assert row.without_out_bytes == batch * image and row.without_bytes == 2 * batch * image
        assert 0 <= row.without_bytes - row.without_recompute_bytes <= 4096 * 4 * batch


def test_that_is_little_more_than_half_of_what_was_published(rows: dict[int, TrafficRow]) -> None:
    """Missed, and not by rounding: no reading of the stage comes near."""
    for batch, row in rows.items():
        value = published.WITHOUT_CACHE[batch].value * GB
        assert 0.52 < row.without_bytes / value < 0.58
        assert row.without_out_bytes < row.without_recompute_bytes < 0.6 * value


def lines(unit: int) -> list[tuple[float, float]]:
    """(where it begins, slope) in bytes of lines through all published figures, each within its rounding."""
    published_bytes = {batch: figure.value * unit for batch, figure in published.WITHOUT_CACHE.items()}
    slack = 0.005 * unit
    found = []
    for first, last in itertools.combinations(published_bytes, 2):
        for low, high in itertools.product((-slack, slack), repeat=2):
            slope = (published_bytes[last] + high - published_bytes[first] - low) / (last - first)
            start = published_bytes[first] + low - slope * first
            if all(abs(start + slope * b - y) <= slack * (1 + 1e-9) for b, y in published_bytes.items()):
                found.append((start, slope))
    return found


def test_the_fit_gives_every_published_figure_to_its_last_digit(rows: dict[int, TrafficRow]) -> None:
    for batch, row in rows.items():
        assert round(row.without_fitted_bytes / GB, 2) == published.WITHOUT_CACHE[batch].value


def test_the_published_line_begins_at_the_weights_and_only_in_decimal_gigabytes() -> None:
    network = build("alexnet:superneurons", 1)
    weights = sum(parameter.weight.nbytes for _, _, parameter in network.parameters())
    starts, slopes = zip(*lines(GB), strict=True)
    assert min(starts) <= weights <= max(starts)
    assert min(starts) > 0.24 * GB and max(starts) < 0.26 * GB  # so it is not 0, and not weights and gradients
    assert min(slopes) <= traffic.fitted_bytes(network) - weights <= max(slopes)
    binary = [start for start, _ in lines(1 << 30)]
    assert weights < min(binary)


def test_with_the_cache_nothing_moves_and_with_nothing_freed_only_the_last_batch(rows: dict[int, TrafficRow]) -> None:
    for batch, row in rows.items():
        assert row.with_bytes == 0
        assert (row.with_nothing_freed_bytes > 0) == (published.WITH_CACHE[batch].value > 0) == (batch == 1024)
    assert rows[1024].with_nothing_freed_bytes / GB == pytest.approx(0.783, abs=0.001)  # published: 0.88


def test_every_reading_is_a_right_program() -> None:
    network = build("alexnet:superneurons", 1024)
    for wanted in (OFFLOAD, traffic.RECOMPUTE, EVERYTHING, CACHE_ALONE):
        plan(network, wanted, traffic.K40C, traffic.K40C.memory_bytes).verify()


def test_nothing_freed_means_every_managed_tensor_is_alive_at_the_end() -> None:
    network = build("lenet", 4)
    program = plan(network, CACHE_ALONE, MACHINES["k40c"], PLENTY)
    assert program.rows[-1].live_bytes == sum(tensor.nbytes for tensor in network.managed)
    assert moved_bytes(program) == 0


# -- the pool grows ----------------------------------------------------------------------------------------------------

#: Network, batch → whether the cache moves anything within the budgets that fit at all.
PAPERS = {
    ("alexnet", 200): False, ("vgg16", 32): True, ("vgg19", 32): True, ("resnet50", 16): True,
    ("resnet101", 8): True, ("inceptionv4", 2): True,
}  # fmt: skip


def shares(network: Network, low: float, count: int, wanted: Setup = EVERYTHING) -> list[Program]:
    """From a share of what an unlimited plan comes to use, to all of it."""
    top = plan(network, wanted, traffic.K40C, PLENTY).arena_bytes
    budgets = [round(top * (low + (1 - low) * i / (count - 1))) for i in range(count)]
    return list(by_budget(network, budgets, wanted))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "batch"), PAPERS)
def test_traffic_falls_as_the_pool_grows_on_the_papers_networks(name: str, batch: int) -> None:
    """From the least that fits, of seven budgets, to plenty.  Where AlexNet fits at all nothing moves, as in the
    published curve: the step of its peak needs most of the pool for itself."""
    network = build(f"{name}:superneurons", batch)
    points = shares(network, 0.4, 7)
    moved = [moved_bytes(point) for point in points]
    assert moved == sorted(moved, reverse=True) and moved[-1] == 0
    if PAPERS[name, batch]:
        assert len(points) >= 4 and moved[0] > 0
        first, last = points[0], points[-1]
        assert first.counts.evictions > last.counts.evictions == 0 and first.counts.misses >= last.counts.misses
        assert first.budget < last.budget and first.planned_seconds > last.planned_seconds


@pytest.mark.slow
def test_on_drawn_networks_more_room_seldom_moves_more_bytes() -> None:
    """They need not fall, because of holes and prefetches: counted is how often the next larger budget moves more."""
    found: Counter[str] = Counter()
    everything_moves = EVERYTHING.replace(recompute=NoRecompute())  # else most of what is evicted needs no copy

    @settings(max_examples=30, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(networks())
    def draw(network: Network) -> None:
        for smaller, larger in itertools.pairwise(shares(network, 0.4, 9, everything_moves)):
            found["pairs"] += moved_bytes(smaller) > 0
            found["more"] += moved_bytes(larger) > moved_bytes(smaller)

    draw()
    assert found["pairs"] > 30
    assert found["more"] < 0.1 * found["pairs"], found
