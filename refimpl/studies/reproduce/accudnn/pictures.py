"""Pictures of AccUDNN's evaluation: memory, batch and cluster, when the maps are prefetched, which leave."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from matplotlib.figure import Figure

from refimpl.report import style
from refimpl.studies.drawing import Series, bars_picture
from refimpl.studies.reproduce.accudnn.figures import (
    POLICIES,
    SCALING,
    AccountedRow,
    BatchRow,
    ClusterRow,
    PolicyRow,
    RatioRow,
    TogetherRow,
)
from refimpl.studies.reproduce.accudnn.published import BATCH, BEFORE_GB, CLUSTER, MEMORY
from refimpl.studies.reproduce.evaluation import GIB, titled

COLOURS = (style.BLUE, style.SKY, style.GREEN, style.ORANGE, style.VERMILION)


def memory_picture(rows: Sequence[AccountedRow]) -> Figure:
    """A group of bars a GPU and accounting: the bytes without AccUDNN, and those needed for the same speed."""
    groups = [f"{row.machine}\n{row.accounting}\n{row.batch} images" for row in rows]
    series = {
        "by the accounting": (style.GREY, [row.accounted_bytes / GIB for row in rows]),
        "needed, at most 1 % slower": (style.BLUE, [row.needed_bytes / GIB for row in rows]),
    }
    title = "ResNet-152: memory without loss of speed"
    subtitle = "simulated, our reconstruction · lines: the abstract's more than 24 GB and 8 GB"
    return bars_picture((title, subtitle), groups, series, "GiB", lines=(BEFORE_GB, MEMORY.value), width=14)


def batch_picture(rows: Sequence[BatchRow]) -> Figure:
    """A group of bars a GPU, a bar an accounting: the tuned batch over the largest without the policy."""
    gpus, accountings = (list(dict.fromkeys(getattr(row, name) for row in rows)) for name in ("machine", "accounting"))
    found = {(row.machine, row.accounting): row for row in rows}
    groups = [f"{gpu}\n{next(row.optimal for row in rows if row.machine == gpu)} images" for gpu in gpus]
    series = {
        name: (colour, [found[gpu, name].ratio for gpu in gpus])
        for name, colour in zip(accountings, COLOURS, strict=False)
    }
    title = "ResNet-152 in 12 GiB: the efficiency-optimal batch over the largest without the policy"
    subtitle = "simulated, our reconstruction · line: the abstract's 4.2 times the original Caffe's"
    return bars_picture((title, subtitle), groups, series, "times as many images", lines=(BATCH.value,))


def cluster_picture(rows: Sequence[ClusterRow]) -> Figure:
    """A group of bars a GPU and link, without overlap: the speed-up of 8 workers, over three bases."""
    plainly = [row for row in rows if not row.overlap]
    groups = [f"{row.machine}\n{row.rate / 1e9:g} GB/s" for row in plainly]
    series: Series = {
        "over one worker of the same batch": (style.BLUE, [row.own for row in plainly]),
        "over one GPU with Caffe's batch": (style.SKY, [row.speedup for row in plainly]),
        "8 GPUs with Caffe's batch over one": (style.GREY, [row.baseline for row in plainly]),
    }
    title = "ResNet-152: 8 GPUs, a simulated ring without overlap"
    subtitle = "our reconstruction · line: the abstract's 7.7 times, whose base and link are not published"
    return bars_picture((title, subtitle), groups, series, "images a second, times", lines=(CLUSTER.value,))


def together_picture(rows: Sequence[TogetherRow]) -> Figure:
    """A group of bars a GPU and Caffe: the batch over Caffe's, and 8 GPUs over one of Caffe's."""
    groups = [f"{row.machine}\n{row.accounting}\n{row.link / 1e9:.2f} GB/s" for row in rows]
    series: Series = {
        "tuned batch over Caffe's": (style.GREEN, [row.ratio for row in rows]),
        "8 GPUs over one with Caffe's batch": (style.BLUE, [row.speedup for row in rows]),
    }
    title = "ResNet-152: the claims in one reading"
    subtitle = f"our reconstruction, link fitted to {SCALING:.2f} for the baseline's 8 · lines: the abstract's 4.2, 7.7"
    return bars_picture((title, subtitle), groups, series, "times", lines=(BATCH.value, CLUSTER.value))


def policies_picture(rows: Sequence[PolicyRow]) -> Figure:
    """Small axes a GPU and network: how much slower each policy is, by the budget."""
    groups: dict[str, list[PolicyRow]] = {}
    for row in rows:
        groups.setdefault(f"{titled(row)}, {row.machine}", []).append(row)
    subtitle = "times the baseline with unlimited memory · simulated, our reconstruction · no mark: does not fit"
    with style.page(11, 2.4 * -(-len(groups) // 3) + 1, "An iteration within a budget", subtitle, 0.6) as figure:
        grid = figure.subplots(-(-len(groups) // 3), 3, squeeze=False).flat
        for axes, (name, theirs) in zip(grid, groups.items(), strict=False):
            for policy, colour in zip(POLICIES, COLOURS, strict=False):
                ratios = [row.ratios[policy] or float("nan") for row in theirs]
                axes.plot([row.budget_bytes / GIB for row in theirs], ratios, "o-", color=colour, label=policy, ms=3)
            axes.set_title(name, fontsize=8)
            axes.set_ylim(0.95, 3.1)
            axes.set_xlabel("GiB", fontsize=8)
        grid[0].legend(fontsize=7)
        for axes in grid[len(groups) :]:
            axes.set_visible(False)
    return figure


def ratio_picture(rows: Sequence[RatioRow], title: str) -> Figure:
    """A group of bars a network, a bar a variant: how much slower than with unlimited memory."""
    groups = [f"{titled(row)}\n{row.budget_bytes / GIB:.2f} GiB" for row in rows]
    slower = [{label: 100 * (ratio - 1) for label, ratio in row.ratios.items() if ratio} for row in rows]  # per cent
    series = {label: (colour, [found.get(label) for found in slower])
              for label, colour in zip(rows[0].ratios, COLOURS, strict=False)}  # fmt: skip
    subtitle = "Titan X, simulated, our reconstruction · ×: does not fit"
    return bars_picture((title, subtitle), groups, series, "slower than with unlimited memory (%)")


prefetch_picture = partial(ratio_picture, title="When the same maps are prefetched")
choice_picture = partial(ratio_picture, title="Which maps leave, by the order in which they are chosen")
