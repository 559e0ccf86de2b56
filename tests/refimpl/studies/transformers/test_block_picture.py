"""Pictures of transformers: bars are as wide as bytes, and have the colour of what becomes of a map."""

from __future__ import annotations

from collections import Counter

from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from refimpl.studies.transformers.block_bytes import block_maps
from refimpl.studies.transformers.block_picture import FATES, block_fates
from tests.refimpl.studies.transformers.test_yardsticks import small_gpt


def test_each_rule_has_a_bar_for_each_map_of_a_block_one_after_another() -> None:
    network = small_gpt()
    maps = block_maps(network)
    policies = {"everything kept": "baseline", "vDNN": "vdnn-all", "SuperNeurons": "superneurons"}
    figure = block_fates(network, "titan-x", policies)
    axes = figure.axes[0]
    rows: dict[float, list[Rectangle]] = {}
    for bar in axes.patches:
        assert isinstance(bar, Rectangle)
        rows.setdefault(bar.get_y(), []).append(bar)
    assert len(rows) == len(policies)
    names = {to_hex(colour): name for name, colour in FATES.items()}
    found = {}
    for y, bars in rows.items():
        at = 0.0
        for bar, one in zip(bars, maps, strict=True):
            assert (bar.get_x(), bar.get_width()) == (at, one.units)
            at += one.units
        assert axes.get_xlim() == (0, at)
        found[y] = Counter(names[to_hex(bar.get_facecolor())] for bar in bars)
    kept, offloading, dropping = (found[y] for y in sorted(found, reverse=not axes.yaxis_inverted()))
    assert set(kept) == {"kept"} and offloading["offloaded"] > 0 == offloading["dropped"] and dropping["dropped"] > 0
