"""A machine with a fixed cost a call, and what a fit to one figure says of the others."""

from __future__ import annotations

import pytest

from refimpl.memory import UNLIMITED
from refimpl.names.networks import build
from refimpl.planner import plan
from refimpl.studies.reproduce.superneurons import by_type, published, unseen
from refimpl.studies.reproduce.superneurons.figures import FASTEST, K40C
from refimpl.studies.reproduce.superneurons.fixed_cost import FixedCost, library_calls

pytestmark = pytest.mark.superneurons


def test_every_kernel_takes_longer_by_the_cost_of_its_calls() -> None:
    network = build("tiny-resnet:superneurons", 4)
    machine = FixedCost.of(K40C, 1e-3)
    assert machine.name == K40C.name and machine.sources == K40C.sources
    for step in network.steps:
        for call in step.calls:
            more = machine.seconds(call) - K40C.seconds(call)
            assert more == pytest.approx(1e-3 * library_calls(call))


def test_the_machine_takes_as_long_as_the_shares_are_calculated_with() -> None:
    """Kernels run one after another, so a type's time grows by the cost times its calls."""
    network = build("tiny-vgg:superneurons", 4)
    plain, dear = (plan(network, FASTEST, machine, UNLIMITED)
                   for machine in (K40C, FixedCost.of(K40C, 1e-3)))  # fmt: skip
    calls = by_type.calls(network)
    expected = {kind: found + 1e-3 * calls[kind] for kind, found in by_type.kernel_seconds(plain).items()}
    assert by_type.kernel_seconds(dear) == pytest.approx(expected)


@pytest.mark.slow
def test_a_fit_to_one_figure_is_tried_on_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fits Figure 8a is of no use elsewhere, which is why no machine has it; ResNet-50's line helps Table 2."""
    monkeypatch.setattr(unseen, "TRIED", (0.0,))
    cached = {name: published.FASTER_WITH_CACHE[name] for name in ("alexnet", "vgg16", "resnet50")}
    monkeypatch.setattr(published, "FASTER_WITH_CACHE", cached)
    pooled = {name: published.FASTER_WITH_POOL[name] for name in ("vgg16", "resnet50", "resnet101")}
    monkeypatch.setattr(published, "FASTER_WITH_POOL", pooled)
    found = unseen.unseen(lambda name: None)
    assert not found.figures
    none, of_resnet, of_types = found.rows
    assert (none.fitted, of_resnet.fitted, of_types.fitted) == ("", "to ResNet-50", "to Figure 8a")
    assert of_types.types < 0.2 < none.types and of_types.types_of_calls < 0.15
    assert none.cache <= of_types.cache and none.pool_ratio < of_types.pool_ratio
    assert of_resnet.pool_speed < 0.15 < none.pool_speed < of_types.pool_speed
    assert of_types.call_seconds > 50 * of_resnet.call_seconds
