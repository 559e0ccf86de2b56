"""PyTorch in the same budget: what its bytes are, and that its three ways compute the same."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.names.networks import build
from refimpl.studies.bench import pytorch
from refimpl.studies.bench.pytorch import WAYS, TorchTraining, counted_bytes, segments
from refimpl.studies.reproduce.superneurons.measured import largest_by_torch as largest

pytestmark = pytest.mark.superneurons

NETWORKS = ("lenet", "tiny-vgg", "tiny-resnet", "tiny-inception", "tiny-resnet:superneurons")


@pytest.mark.parametrize("name", NETWORKS)
def test_a_segment_reads_one_map_of_the_one_before(name: str) -> None:
    network = build(name, 1)
    parts = segments(network)
    assert [layer for part in parts for layer in part] == [*network.layers] and len(parts) > 1
    before = None
    for part in parts:
        outside = {producer for layer in part for producer in layer.producers if producer not in part}
        assert len(outside) == 1 and (before is None or outside == {before})
        assert not part[0].in_place
        before = part[-1]


def test_bytes_are_those_of_storages_until_they_are_freed() -> None:
    torch = pytest.importorskip("torch")
    with counted_bytes() as counted:
        x = torch.zeros(256)
        view = x.view(16, 16)
        assert counted.live.device == 1024
        with counted.on_host():
            y = x + 1
        assert (counted.live.device, counted.live.host) == (1024, 1024)
        del x, y
        assert (counted.live.device, counted.live.host) == (1024, 0), "a view keeps its storage"
        del view
    assert counted.live.device == 0 and counted.peak.device == counted.peak.host == 1024


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS[:3:2])
def test_the_three_ways_compute_the_same_with_other_memory(name: str) -> None:
    torch = pytest.importorskip("torch")
    trained = {way: TorchTraining(build(name, 8), way) for way in WAYS}
    losses = {}
    for way, training in trained.items():
        torch.manual_seed(0)
        losses[way] = [training.step() for _ in range(3)]
    assert losses["checkpointing"] == losses["on the host"] == losses[pytorch.PLAIN]
    plain, less, host = (training.peak() for training in trained.values())
    assert less.device < plain.device and host.device < plain.device
    assert plain.host == less.host == 0 < host.host


@given(power=st.floats(0.8, 1.2), budget=st.integers(0, 12345))
def test_the_search_for_the_largest_batch_ends_at_the_last_that_fits(power: float, budget: int) -> None:
    """Beside the slow way, one image after another; bytes are about linear in images."""

    def device(batch: int) -> int:
        return 40 + int(60 * batch**power)

    class Sized:
        def __init__(self, batch: int, way: str) -> None:
            self.peak = lambda: pytorch.Peak(device(batch), batch)

        def step(self) -> float:
            return 0.0

    by_one = max((batch for batch in range(1, 2000) if device(batch) <= budget), default=None)
    identity: Any = lambda batch: batch  # noqa: E731
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pytorch, "TorchTraining", Sized)
        run = largest(identity, pytorch.PLAIN, budget, 1, lambda text: None)
    assert (run and (run.batch, run.peak_bytes, run.pinned_bytes)) == (by_one and (by_one, device(by_one), by_one))


def test_the_largest_batch_fits_and_one_image_more_does_not() -> None:
    pytest.importorskip("torch")
    tiny, seen = partial(build, "lenet"), list[str]()
    run = largest(tiny, pytorch.PLAIN, 6 << 20, 1, seen.append)
    assert (
        run is not None and run.peak_bytes <= 6 << 20 < TorchTraining(tiny(run.batch + 1), pytorch.PLAIN).peak().device
    )
    assert seen == ["plain: an iteration"]
    assert largest(tiny, pytorch.PLAIN, 1 << 16, 1, seen.append) is None
