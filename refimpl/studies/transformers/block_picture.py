"""What each rule does with the maps of one block of a transformer, as a picture."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from refimpl.memory import UNLIMITED
from refimpl.names.machines import named as machine_named
from refimpl.names.presets import setup as setup_named
from refimpl.network import Network
from refimpl.planner import plan
from refimpl.report import style
from refimpl.studies.transformers.block_bytes import block_maps
from refimpl.studies.transformers.yardsticks import YARDSTICKS

FATES = {"kept": style.GREY, "offloaded": style.SKY, "dropped": style.GREEN}
NOTE = "Its maps in forward order, as wide as their bytes; above, what makes each, and units of the block's input."
WORDS = {"offload": "offloaded", "drop": "dropped", "keep": "kept"}
#: The rules that are drawn, where memory is no limit.
RULES = {
    "vdnn-conv": "vdnn-conv", "vdnn-all": "vdnn-all", "vdnnpp-conv": "vdnnpp-conv", "vdnnpp-all": "vdnnpp-all",
    "superneurons-recompute": "superneurons-recompute", "superneurons-offload": "superneurons-offload",
    "attention again": YARDSTICKS["attention again"], "per block": YARDSTICKS["per block"],
}  # fmt: skip


def block_fates(network: Network, machine: str, policies: Mapping[str, str] = RULES) -> Figure:
    """What each rule does with the maps of one block: as wide as their bytes.

    Args:
        network: a transformer.
        machine: a machine's name.
        policies: label → setup.
    """
    maps = block_maps(network)
    by_name = {tensor.name: tensor for tensor in network.managed}
    with style.page(10, 1.5 + 0.42 * len(policies), f"A block of {network.name}: what each rule does", NOTE) as figure:
        axes = figure.subplots()
        axes.set_yticks([*range(0, -len(policies), -1)], [*policies], fontsize=9)  # the first one on top
        axes.set_ylim(-len(policies) + 0.4, 0.6)
        style.named_rows(axes)
        for place, setup in enumerate(policies.values()):
            fates = plan(network, setup_named(setup), machine_named(machine), UNLIMITED).fates
            left = 0.0
            for one in maps:
                fate = fates.get(by_name[one.name])
                colour = FATES[WORDS[fate.name] if fate else "kept"]
                axes.barh(-place, one.units, 0.8, left, color=colour, edgecolor="white", linewidth=1.5)
                left += one.units
        centre = 0.0
        for one in maps:
            said = f"{one.made_by}\n{one.units:g}"
            axes.text(centre + one.units / 2, 0.55, said, ha="center", va="bottom", fontsize=7)
            centre += one.units
        axes.set_xlim(0, centre)
        axes.set_xticks([])
        axes.spines["bottom"].set_visible(False)
        style.legend_row(figure, [Patch(color=colour, label=name) for name, colour in FATES.items()])
    return figure
