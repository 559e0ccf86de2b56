"""The demo's pictures: the loss, what the network sees, and where the time goes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from refimpl.demo.data import BATCH, CLASSES
from refimpl.demo.network import Arrays
from refimpl.devices import Device


def draw_loss(path: Path, losses: Sequence[float], right: float) -> None:
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    smooth = np.convolve(losses, np.ones(8) / 8, mode="valid")
    axes.plot(range(1, len(losses) + 1), losses, color="0.7", label="one batch")
    axes.plot(range(8, len(losses) + 1), smooth, color="C0", linewidth=2, label="mean of 8")
    axes.axhline(np.log(len(CLASSES)), color="0.4", linestyle=":", label=f"guessing: ln {len(CLASSES)}")
    axes.set(xlabel="iteration", ylabel="loss (cross-entropy)", ylim=(0, None), xlim=(1, len(losses)))
    axes.set_title(f"After {len(losses)} iterations it names {right:.0%} of new pictures right")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)


def draw_maps(path: Path, device: Device, arrays: Arrays) -> None:
    """One picture on its way through the first layer, with the filters it met, and what the network says it is."""
    images, labels, filters = (device.host(arrays[name]) for name in ("images", "labels", "w1"))
    maps, says = device.host(arrays["relu1"]), device.host(arrays["softmax"])
    figures = [CLASSES.index(kind) for kind in ("ring", "square", "cross")]
    shown = int(np.isin(labels, figures).argmax())  # the first that is no pattern
    figure = Figure(figsize=(11, 8.2), layout="constrained")
    upper, lower = figure.subfigures(2, 1, height_ratios=(3.3, 2), squeeze=False).flat
    first, middle, last = upper.subfigures(1, 3, width_ratios=(1, 1.55, 1.55), squeeze=False).flat
    panels: Iterable[tuple[Any, str, np.ndarray, str]] = (
        (middle, "the first layer's 16 filters, 5×5", filters[:, 0], "RdBu_r"),
        (last, "its 16 maps of this picture, behind the ReLU", maps[shown], "viridis"),
    )
    first.suptitle("a new picture", fontsize=10)
    axes = first.add_subplot()
    axes.imshow(images[shown, 0], cmap="gray")
    axes.set_axis_off()
    for panel, title, pictures, colours in panels:
        panel.suptitle(title, fontsize=10)
        for axes, picture in zip(panel.subplots(4, 4).flat, pictures, strict=True):
            limit = abs(pictures).max()
            axes.imshow(picture, cmap=colours, vmin=-limit if colours == "RdBu_r" else 0, vmax=limit)
            axes.set_axis_off()
    lower.suptitle("new pictures, and what the network says they are (in red: wrong)", fontsize=10)
    for i, axes in enumerate(lower.subplots(2, 8).flat):
        said = int(says[i].argmax())
        axes.imshow(images[i, 0], cmap="gray")
        axes.set_axis_off()
        axes.set_title(f"{CLASSES[said]}, {says[i, said]:.0%}", fontsize=9, color="k" if said == labels[i] else "C3")
    figure.savefig(path, dpi=120)


def duration(seconds: float) -> str:
    """Three digits of milliseconds or microseconds."""
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"


def draw_times(path: Path, device: Device, taken: dict[str, float]) -> None:
    figure = Figure(figsize=(8, 0.26 * len(taken) + 1.2), layout="constrained")
    axes = figure.add_subplot()
    names, total = list(taken), sum(taken.values())
    bars = axes.barh(names, [taken[name] * 1000 for name in names], color="C0")
    axes.bar_label(bars, [f" {duration(taken[name])}" for name in names], fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.2, y=0.01)
    axes.tick_params(axis="y", labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("milliseconds in one forward and backward pass")
    axes.set_title(f"{total * 1000:.1f} ms in kernels, batch {BATCH}, on {device.name}", fontsize=10)
    figure.savefig(path, dpi=120)
