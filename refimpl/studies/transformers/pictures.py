"""Pictures of outcomes: slow-down over budget, largest batches, and what each rule does with one block's maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from refimpl.memory import UNLIMITED
from refimpl.names.machines import named as machine_named
from refimpl.names.presets import setup as setup_named
from refimpl.network import Network
from refimpl.planner import plan
from refimpl.report import style
from refimpl.studies.drawing import named
from refimpl.studies.transformers.block_bytes import block_maps
from refimpl.studies.transformers.outcome_tables import distinct, of, shares
from refimpl.studies.transformers.outcomes import POLICIES, Outcome
from refimpl.studies.transformers.yardsticks import YARDSTICKS

#: Policy → its line: colour, marker, dashes.
LOOKS: dict[str, tuple[str, str, Any]] = {
    "everything kept": (style.INK, "s", "-"), "attention again": (style.PALE, "s", (0, (1, 1))),
    "per block": (style.INK, "D", (0, (3, 2))),
    "vdnn-all": (style.BLUE, "o", (0, (3, 2))), "vdnn-dyn": (style.BLUE, "o", "-"),
    "vdnnpp-all": (style.GREEN, "^", (0, (3, 2))), "vdnnpp-dyn": (style.GREEN, "^", "-"),
    "superneurons": (style.AMBER, "v", "-"), "accudnn": (style.PURPLE, "P", "-"),
    "combined": (style.VERMILION, "o", "-"),
}  # fmt: skip
HIGHEST = 2.6  #: slow-down; what is above is drawn at the edge
#: In the picture of batches.  A dynamic policy's largest is that of its frugal candidate, which offloads all.
DRAWN = ("attention again", "per block", "vdnn-dyn", "vdnnpp-dyn", "superneurons", "accudnn", "combined")
FATES = {"kept": style.GREY, "offloaded": style.SKY, "dropped": style.GREEN}

Found = Sequence[Outcome]


def look(policy: str, **more: Any) -> dict[str, Any]:
    colour, marker, dashes = LOOKS[policy]
    width = 2.4 if policy == "combined" else 1.3
    return {"color": colour, "marker": marker, "linestyle": dashes, "markersize": 4, "linewidth": width} | more


def over_budget(found: Found) -> Figure:
    """Slow-down over the share of the way, a panel for each network and machine."""
    inside = [one for one in found if one.share is not None]
    networks, machines = distinct(inside, "network"), distinct(inside, "machine")
    width, height = max(8.2, 0.6 + 2.7 * len(machines)), 1.5 + 1.9 * len(networks)
    with style.page(width, height, "Transformers: slow-down over budget", SUBTITLE, 1.0) as figure:
        panels = figure.subplots(len(networks), len(machines), squeeze=False, sharex=True, sharey="col")
        for row, network in zip(panels, networks, strict=True):
            for axes, machine in zip(row, machines, strict=True):
                panel(axes, of(inside, network=network, machine=machine), shares(inside), f"{network}, {machine}")
            row[0].set_ylabel("slow-down")
        for axes, machine in zip(panels[0], machines, strict=True):  # a column has one scale
            slowest = max([1.05, *(one.slow_down for one in of(inside, machine=machine) if one.slow_down)])
            axes.set_ylim(1 - 0.04 * (slowest - 1), min(HIGHEST, 1 + 1.06 * (slowest - 1)))
        for axes in panels[-1]:
            axes.set_xlabel("budget, of the way")
        policies = [policy for policy in POLICIES if any(one.fits for one in of(inside, policy=policy))]
        handles = [Line2D([], [], label=policy, **look(policy)) for policy in policies]
        words = style.LEGEND | {"handlelength": 2.8, "ncols": 5, "loc": "upper left"}
        legend = figure.legend(handles=handles, bbox_to_anchor=(0.1 / width, 1 - 0.58 / height), **words)
        legend.set_in_layout(False)
    return figure


SUBTITLE = "Budgets: 0 % is the least that any policy could need, 100 % what the baseline needs.  Simulated."


def panel(axes: Axes, here: Found, every: Sequence[float], title: str) -> None:
    """One network on one machine; the shares of the way are equally far from each other."""
    axes.set_title(title, fontsize=9)
    place = {share: number for number, share in enumerate(every)}
    for policy in POLICIES:
        fit = [one for one in of(here, policy=policy) if one.slow_down]
        slow_downs = [min(one.slow_down or 0.0, HIGHEST) for one in fit]
        if fit:  # a line of no points that is not clipped has no place, and would spoil the layout
            axes.plot([place[one.share or 0.0] for one in fit], slow_downs, clip_on=False, **look(policy))
    if not any(one.fits for one in here):
        axes.text(0.5, 0.5, "nothing fits", transform=axes.transAxes, ha="center", color=style.PALE)
    axes.set_xlim(-0.2, len(every) - 0.8)
    axes.set_xticks(range(len(every)), [f"{share:.0%}" for share in every], fontsize=8)
    style.grid(axes)


def largest_batches(found: Found) -> Figure:
    """Each policy's largest batch over that of everything kept, a panel a machine."""
    inside = of(found, share=None)
    networks, machines = distinct(inside, "network"), distinct(inside, "machine")
    width, height = 1.3 + 2.7 * len(machines), 1.7 + 0.55 * len(networks)
    note = "Over the largest with everything kept.  Hollow: no kernel can index a larger one.  Simulated."
    with style.page(width, height, "Transformers: the largest batch", note, 0.85) as figure:
        panels = figure.subplots(1, len(machines), squeeze=False, sharex=True, sharey=True)[0]
        for axes, machine in zip(panels, machines, strict=True):
            axes.set_title(machine, fontsize=9)
            places = named(axes, networks)
            for network in networks:
                draw_batches(axes, places[network], of(inside, network=network, machine=machine))
            axes.set_xscale("log", base=2)
            axes.set_xticks([1, 2, 4, 8, 16], ["1 ×", "2 ×", "4 ×", "8 ×", "16 ×"])
            axes.minorticks_off()
            style.grid(axes, "x")
        policies = [policy for policy in DRAWN if of(inside, policy=policy)]
        handles = [Line2D([], [], label=policy, **look(policy, linestyle="none", markersize=6)) for policy in policies]
        style.legend_row(figure, handles)
    return figure


def draw_batches(axes: Axes, place: float, here: Found) -> None:
    """The policies of one network, each a little below the last; what does not fit is left out."""
    batches = {one.policy: one for one in here if one.fits}
    kept = batches.pop("everything kept", None)
    if kept is None:
        why = "not even a batch of 1 is kept whole" if batches else "does not fit"
        axes.text(1.05, place, why, fontsize=7, color=style.PALE, va="center")
        return
    for number, policy in enumerate(policy for policy in DRAWN if policy in batches):
        one = batches[policy]
        face = "white" if one.kernels_limit else LOOKS[policy][0]
        axes.plot(
            one.batch / kept.batch, place + 0.3 - 0.1 * number,
            **look(policy, linestyle="none", markerfacecolor=face, markersize=5),
        )  # fmt: skip


def block_fates(network: Network, machine: str, policies: Mapping[str, str]) -> Figure:
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
        places = named(axes, [*policies])
        for label, setup in policies.items():
            fates = plan(network, setup_named(setup), machine_named(machine), UNLIMITED).fates
            left = 0.0
            for one in maps:
                fate = fates.get(by_name[one.name])
                colour = FATES[WORDS[fate.name] if fate else "kept"]
                axes.barh(places[label], one.units, 0.8, left, color=colour, edgecolor="white", linewidth=1.5)
                left += one.units
        centre = 0.0
        for one in maps:
            axes.text(
                centre + one.units / 2, 0.55, f"{one.made_by}\n{one.units:g}", ha="center", va="bottom", fontsize=7
            )
            centre += one.units
        axes.set_xlim(0, centre)
        axes.set_xticks([])
        axes.spines["bottom"].set_visible(False)
        style.legend_row(figure, [Patch(color=colour, label=name) for name, colour in FATES.items()])
    return figure


NOTE = "Its maps in forward order, as wide as their bytes; above, what makes each, and units of the block's input."
WORDS = {"offload": "offloaded", "drop": "dropped", "keep": "kept"}

#: The rules that `block_fates` draws, where memory is no limit.
RULES = {
    "vdnn-conv": "vdnn-conv", "vdnn-all": "vdnn-all", "vdnnpp-conv": "vdnnpp-conv", "vdnnpp-all": "vdnnpp-all",
    "superneurons-recompute": "superneurons-recompute", "superneurons-offload": "superneurons-offload",
    "attention again": YARDSTICKS["attention again"], "per block": YARDSTICKS["per block"],
}  # fmt: skip
