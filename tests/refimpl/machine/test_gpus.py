"""The named machines: their figures against data sheets' clocks and widths, and a source of each."""

from __future__ import annotations

import pytest

from refimpl.machine import MACHINES, Machine
from refimpl.machine.model import FIGURES
from refimpl.studies.reproduce.machines.fit import FITTED

GIB = 1 << 30
PAPERS = ("titan-x", "k40c", "titan-xp", "gtx-970")
APPLE = ("m1-pro", "m1-max", "m2-max")  # which have one memory with the CPU


def test_the_papers_gpus_offer_their_library_and_todays_our_kernels() -> None:
    catalogues = {name: made.catalogue for name, made in MACHINES.items()}
    assert {name for name, catalogue in catalogues.items() if catalogue == "cudnn4"} == set(PAPERS)
    assert set(catalogues.values()) == {"own", "cudnn4"}


def test_sizes_and_peaks_are_of_the_right_order() -> None:
    for name, made in MACHINES.items():
        assert 3 * GIB < made.memory_bytes < 200 * GIB
        assert 3e12 < made.flops < 2e14 and 2e11 <= made.bandwidth < 6e12
        assert made.link == made.bandwidth / 2 if name in APPLE else made.link < made.bandwidth / 10


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
        if name not in PAPERS:
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
    "l40s": (128, 142, 2.520e9, 384, 18e9, 46068, 25.6),
    "a6000": (128, 84, 1.800e9, 384, 16e9, 49140, 25.6),
    "a10": (128, 72, 1.695e9, 384, 12.5e9, 23028, 25.6),
    "l4": (128, 58, 2.040e9, 192, 12.5e9, 23034, 25.6),
    "t4": (64, 40, 1.590e9, 256, 10e9, 15360, 12),
    "mi300x": (128, 304, 2.100e9, 8192, 5.2e9, 196592, 52.8),
    "rtx-5090": (128, 170, 2.407e9, 512, 28e9, 32607, 52.8),
    "rtx-5080": (128, 84, 2.617e9, 256, 30e9, 16303, 52.8),
    "rtx-5070-ti": (128, 70, 2.452e9, 256, 28e9, 16303, 52.8),
    "rtx-5070": (128, 48, 2.512e9, 192, 28e9, 12227, 52.8),
    "rtx-4090": (128, 128, 2.520e9, 384, 21e9, 24564, 25.6),
    "rtx-4080": (128, 76, 2.505e9, 256, 22.4e9, 16376, 25.6),
    "rtx-4070-ti": (128, 60, 2.610e9, 192, 21e9, 12282, 25.6),
    "rtx-4070": (128, 46, 2.475e9, 192, 21e9, 12282, 25.6),
    "rtx-4060-ti": (128, 34, 2.535e9, 128, 18e9, 16380, 12.8),
    "rtx-4060": (128, 24, 2.460e9, 128, 17e9, 8188, 12.8),
    "rtx-3090": (128, 82, 1.695e9, 384, 19.5e9, 24576, 25.6),
    "rtx-3080": (128, 68, 1.710e9, 320, 19e9, 10240, 25.6),
    "rtx-3070": (128, 46, 1.725e9, 256, 14e9, 8192, 25.6),
    "rtx-3060": (128, 28, 1.777e9, 192, 15e9, 12288, 25.6),
    "m1-pro": (128, 16, 1.278e9, 256, 6.25e9, 21845, 100),
    "m1-max": (128, 32, 1.278e9, 512, 6.25e9, 21845, 200),
    "m2-max": (128, 38, 1.398e9, 512, 6.25e9, 21845, 200),
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
