"""The named machines: their figures against data sheets' clocks and widths, and a source of each."""

from __future__ import annotations

import pytest

from refimpl.machine import MACHINES, Machine
from refimpl.machine.model import FIGURES
from refimpl.studies.reproduce.machines.fit import FITTED

GIB = 1 << 30
PAPERS = ("titan-x", "k40c", "titan-xp", "gtx-970")
OWNED = ("a100-40g", "a100-80g", "v100", "p100", "l4", "t4", "rtx-4090", "rtx-3060")


def test_the_papers_gpus_offer_their_library_and_todays_our_kernels() -> None:
    catalogues = {name: made.catalogue for name, made in MACHINES.items()}
    assert {name for name, catalogue in catalogues.items() if catalogue == "cudnn4"} == set(PAPERS)
    assert set(catalogues.values()) == {"own", "cudnn4"}


def test_sizes_and_peaks_are_of_the_right_order() -> None:
    for made in MACHINES.values():
        assert 3 * GIB < made.memory_bytes < 150 * GIB
        assert 3e12 < made.flops < 1e14 and 2e11 < made.bandwidth < 5e12
        assert made.link < made.bandwidth / 10


def sources(made: Machine) -> dict[str, str]:
    """Figure → how it is known."""
    found = [(figure, source.how) for source in made.sources for figure in source.of]
    assert all(source.where for source in made.sources)
    assert sorted(figure for figure, _ in found) == sorted(FIGURES)  # each once
    return dict(found)


def test_every_figure_has_a_source() -> None:
    for name, made in MACHINES.items():
        how = sources(made)
        assert how["efficiency"] == ("fitted" if name in FITTED else "assumed")
        assert how["link"] in ("measured", "paper", "assumed")
        if name in OWNED:
            assert {how[figure] for figure in ("flops", "bandwidth", "multiprocessors")} == {"data sheet"}


#: fp32 lanes of a multiprocessor, multiprocessors, boost clock; bits and rate a line of the memory; MiB; link, GB/s.
DATA_SHEETS = {
    "titan-x": (128, 24, 1.139e9, 384, 7e9, 12288, 12.8),  # the paper's 7 TFLOP/s, at the clock that a card reaches
    "k40c": (192, 15, 0.745e9, 384, 6e9, 12288, 8),
    "titan-xp": (128, 30, 1.582e9, 384, 11.41e9, 12288, 12.8),
    "gtx-970": (128, 13, 1.178e9, 256, 7e9, 3584, 12.8),
    "h100": (128, 132, 1.980e9, 5120, 5.234e9, 81559, 52.8),
    "h200": (128, 132, 1.980e9, 6144, 6.25e9, 143771, 52.8),
    "a100-40g": (64, 108, 1.410e9, 5120, 2.430e9, 40960, 25.1),
    "a100-80g": (64, 108, 1.410e9, 5120, 3.186e9, 81920, 25.1),
    "p100": (64, 56, 1.480e9, 4096, 1.430e9, 16384, 12),
    "v100": (64, 80, 1.530e9, 4096, 1.752e9, 16160, 12),
    "l4": (128, 58, 2.040e9, 192, 12.5e9, 23034, 25.6),
    "t4": (64, 40, 1.590e9, 256, 10e9, 15360, 12),
    "rtx-4090": (128, 128, 2.520e9, 384, 21e9, 24564, 25.6),
    "rtx-3060": (128, 28, 1.777e9, 192, 15e9, 12288, 25.6),
}


@pytest.mark.parametrize("name", MACHINES)
def test_peaks_follow_from_the_data_sheets_clocks(name: str) -> None:
    """Two sources of one number agree."""
    lanes, count, hertz, bits, a_second, mebibytes, link = DATA_SHEETS[name]
    made = MACHINES[name]
    assert made.multiprocessors == count
    assert made.flops == pytest.approx(2 * lanes * count * hertz, rel=0.01)
    assert made.bandwidth == pytest.approx(bits / 8 * a_second, rel=0.01)
    assert (made.memory_bytes >> 20, made.link) == (mebibytes, link * 1e9)


def test_a_machine_without_evidence_has_another_s_shares_and_says_so() -> None:
    """Six GPUs have rows that their figures were fitted to; of our own kernels there is no evidence on any."""
    for name, made in MACHINES.items():
        (source,) = [source for source in made.sources if "efficiency" in source.of]
        if name not in FITTED:
            like = "titan-x" if name == "gtx-970" else "v100"
            assert made.efficiency == MACHINES[like].efficiency
            assert source.where == ("Titan X's" if like == "titan-x" else "V100's; no evidence")
        else:
            assert source.where.endswith("; of our own kernels no evidence")
    known = {made.efficiency for made in MACHINES.values()}
    assert len(known) == len(FITTED) and {(one.forward, one.backward) for one in known} == {(0.413, 0.323)}


def test_latency_takes_fewer_tiles_on_each_later_architecture() -> None:
    """Maxwell, Pascal, Volta, Turing."""
    half = [MACHINES[name].efficiency.half_tiles for name in ("titan-x", "titan-xp", "p100", "v100", "t4")]
    assert half == sorted(half, reverse=True) and half[0] > 4 * half[-1]
