"""The fixed cost of Figure 8a on a machine, and on the figures that the fit has not seen."""

from __future__ import annotations

import pytest

from refimpl.network.zoo import build
from refimpl.reproduce.superneurons import by_type, figures, fixed_cost
from refimpl.reproduce.superneurons.figures import FASTEST, K40C
from refimpl.reproduce.superneurons.fixed_cost import FixedCost

pytestmark = pytest.mark.superneurons


def test_every_kernel_takes_longer_by_the_cost_of_its_calls() -> None:
    network = build("tiny-resnet:superneurons", 4)
    machine = FixedCost.of(K40C, 1e-3)
    assert machine.name == K40C.name and machine.sources == K40C.sources
    for step in network.steps:
        for call in step.calls:
            more = machine.seconds(call) - K40C.seconds(call)
            assert more == pytest.approx(1e-3 * by_type.library_calls(call))


def test_the_machine_takes_as_long_as_the_shares_are_calculated_with() -> None:
    """Kernels run one after another, so a type's time grows by the cost times its calls."""
    network = build("tiny-vgg:superneurons", 4)
    plain, dear = (figures.plan(network, FASTEST, machine, figures.UNLIMITED)
                   for machine in (K40C, FixedCost.of(K40C, 1e-3)))  # fmt: skip
    calls = by_type.calls(network)
    expected = {kind: found + 1e-3 * calls[kind] for kind, found in by_type.kernel_seconds(plain).items()}
    assert by_type.kernel_seconds(dear) == pytest.approx(expected)


@pytest.mark.slow
def test_what_fits_figure_8a_is_of_no_use_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason why no machine has it: Figure 11 stays as far off, and Table 2 moves away."""
    monkeypatch.setattr(fixed_cost, "TRIED", (0.0, 3e-4))
    found = fixed_cost.fixed_cost(lambda name: None)
    assert not found.figures
    none, little, fitted = found.rows
    assert fitted.fitted and fitted.types < 0.2 < none.types and fitted.types_of_calls < 0.15
    assert none.cache <= fitted.cache and none.pool_ratio < fitted.pool_ratio
    assert little.pool_speed < none.pool_speed < fitted.pool_speed
