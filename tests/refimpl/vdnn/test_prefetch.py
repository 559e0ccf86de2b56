"""vDNN's prefetch: the nearest layer that offloaded, never beyond the next CONV, one a layer."""

from __future__ import annotations

import pytest

from refimpl.machine import MACHINES
from refimpl.network import Builder, Network
from refimpl.network.zoo import build
from refimpl.planner import DoesNotFit, PlanContext, Setup, plan
from refimpl.planner.window import Window
from refimpl.vdnn.offload import ALL
from refimpl.vdnn.prefetch import LITERAL, WINDOW
from tests.refimpl.modules import setup

pytestmark = pytest.mark.vdnn

GIB = 2**30
TITAN_X = MACHINES["titan-x"]


def vdnn(window: Window = WINDOW) -> Setup:
    return setup(offload=ALL, prefetch=window, join=True, copy_streams="shared")


def came_back(network: Network, wanted: Setup) -> dict[str, str]:
    """Map → the layer whose backward step brought it back, and how."""
    found = {}
    for i in plan(network, wanted, TITAN_X, 60 * GIB).instructions:
        if i.op == "copy in" and i.why != "batch":
            found[i.tensor.name] = f"{network.steps[i.step - 1].layer.name}: {i.why}"
    return found


def chain() -> Network:
    b = Builder("chain", (2, 3, 16, 16))
    for number in (1, 2):
        b.conv(4, 3, pad=1, name=f"conv{number}")
        b.relu(name=f"relu{number}")
        b.pool(2, name=f"pool{number}")
    b.fc(3, name="fc")
    b.softmax(name="softmax")
    return b.build()


def test_a_layers_backward_brings_the_nearest_map_back_and_stops_at_a_conv() -> None:
    """fc's search looks at pool2 first; pool2's own does not search; relu2's finds conv2, and so on."""
    assert came_back(chain(), vdnn()) == {
        "conv2": "softmax: prefetch",  # X of pool2, whose forward sent it; softmax's backward is the first to search
        "pool1": "fc: prefetch",  # X of conv2
        "conv1": "conv2: prefetch",  # X of pool1: everything nearer has come
        "input": "relu1: prefetch",
    }


def test_read_literally_a_pooling_searches_too() -> None:
    """pool2's search comes before relu2's and conv2's, and finds the next map one layer earlier."""
    assert came_back(chain(), vdnn(LITERAL)) == {
        "conv2": "softmax: prefetch",
        "pool1": "fc: prefetch",
        "conv1": "conv2: prefetch",
        "input": "pool1: prefetch",
    }


def test_the_window_ends_at_a_conv_that_has_nothing_to_bring() -> None:
    """A convolution nobody offloaded hides everything before it: nothing comes back ahead of its own need."""
    b = Builder("hidden", (2, 3, 16, 16))
    b.conv(4, 3, pad=1, name="first")
    b.pool(2, name="pool")
    b.conv(4, 3, pad=1, name="last")
    b.fc(3)
    b.softmax()
    network = b.build()
    bound = WINDOW.bind(walk_with_offloads(network, {"first"}))
    last, pool = network.layer("last"), network.layer("pool")
    fc = network.layer("fc1")
    assert bound.find_prefetch_layer(fc) is None  # `last` is a CONV, and what lies behind it is out of sight
    assert bound.find_prefetch_layer(last) is pool  # who sent the map `first` out
    assert bound.find_prefetch_layer(last) is None  # it is marked; the next one looked at is a CONV


def test_marks_do_not_survive_a_plan() -> None:
    network = chain()
    first, second = (plan(network, vdnn(), TITAN_X, 60 * GIB) for _ in range(2))
    assert first.counts == second.counts and first.counts.prefetched_bytes > 0


def walk_with_offloads(network: Network, names: set[str]) -> PlanContext:
    context = PlanContext(network, TITAN_X)
    context.decide("offload", "test", {t: "test" for t in network.managed if t.name in names})
    return context


@pytest.mark.parametrize(
    ("batch", "window", "gib"),
    [(128, WINDOW, 4.775), (128, LITERAL, 5.469), (256, WINDOW, 9.331), (256, LITERAL, 10.719)],
)
def test_peaks_of_vgg16_with_both_readings_of_the_window(batch: int, window: Window, gib: float) -> None:
    """all(m), live maps and gradients; at 128 images with W and dW of the convolutions (published: 4.8 GB)."""
    network = build("vgg16", batch)
    program = plan(network, vdnn(window), TITAN_X, 60 * GIB)
    weights = sum(2 * p.weight.nbytes for layer, _, p in network.parameters() if layer.kind == "conv")
    live = program.peak.live_bytes + (weights if batch == 128 else 0)
    assert live / GIB == pytest.approx(gib, abs=0.001)
    assert program.counts.on_demand_bytes == 0


def test_vgg16_of_256_images_fits_12_gib_by_one_reading_and_not_by_the_other() -> None:
    network = build("vgg16", 256)
    assert plan(network, vdnn(WINDOW), TITAN_X, 12 * GIB).peak_bytes < 12 * GIB
    with pytest.raises(DoesNotFit, match="pool1 backward"):
        plan(network, vdnn(LITERAL), TITAN_X, 12 * GIB)


def test_a_layer_that_moves_something_takes_as_long_as_the_longer_of_both() -> None:
    """max(compute, copy), for each layer whose neighbour before it was joined too."""
    network = build("vgg16", 64)
    program = plan(network, vdnn(), TITAN_X, 60 * GIB)
    steps = {row.step.number: [0.0, 0.0] for row in program.rows}  # compute, copies
    starts = {}
    for span in program.simulate().spans:
        number = span.instruction.step
        if number in steps and span.instruction.op == "launch":
            starts.setdefault(number, span.start)
            steps[number][0] += span.end - span.start
        elif number in steps and span.instruction.op != "launch":
            steps[number][1] += span.end - span.start
    moved = [k for k in range(2, network.depth) if steps[k][1] and steps[k - 1][1]]
    assert len(moved) > 3
    for k in moved:
        assert starts[k + 1] - starts[k] == pytest.approx(max(steps[k]), rel=1e-9)
