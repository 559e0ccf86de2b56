"""The demo's own pictures: VGG-16's memory beside the budget, and what the small network learnt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from refimpl.backend import Evaluation
from refimpl.backend.data import Data
from refimpl.machine import Timeline
from refimpl.planner import Program
from refimpl.report import style
from refimpl.report.figures import memory_curve
from refimpl.report.memory_pictures import memory_picture, pool_picture
from refimpl.report.timeline_picture import timeline_picture
from refimpl.text import size

COLOURS = (style.VERMILION, style.BLUE, style.PURPLE, style.GREEN, style.ORANGE, style.INK)
SHOWN = 24  #: digits


def draw_vgg16(folder: Path, programs: Mapping[str, Program], budget: int) -> None:
    """Memory of each policy, step by step, and the line that none may cross; vDNN's copies beside its kernels."""
    first = next(iter(programs.values()))
    network = first.network
    with style.styled():
        about = f"{network.name}, batch {network.batch} · held by the pool, as planned for {first.machine.name}"
        figure = style.new_figure(11, 5.2, "What does not fit, and what does", about)
        axes = figure.add_subplot()
        for (name, program), colour in zip(programs.items(), COLOURS, strict=False):
            curve = memory_curve(program)
            places = style.step_axis(program)[np.maximum(curve.positions, 0)]
            label = f"{name}: {size(program.peak_bytes)}"
            axes.step(places, curve.total, where="post", color=colour, linewidth=1.4, label=label)
        axes.axhline(budget, color=style.INK, linewidth=1.2, linestyle=(0, (6, 2)))
        axes.text(len(network.steps), budget, size(budget), va="bottom", ha="right")
        style.byte_axis(axes, max(program.peak_bytes for program in programs.values()), "held by the pool")
        style.label_steps(axes, first)
        style.mark_turn(axes, first)
        style.legend_row(figure, axes.get_lines()[: len(programs)])
    style.save(figure, folder / "vgg16.png")
    moving = programs["vDNN"]
    style.save(timeline_picture(moving, moving.simulate()), folder / "vgg16-copies.png")


def draw_digits(
    folder: Path,
    program: Program,
    timeline: Timeline,
    digits: Data,
    losses: Sequence[float],
    right: Sequence[float],
    last: Evaluation | None,
) -> None:
    """The program's memory, its addresses and one measured iteration; what was learnt."""
    style.save(memory_picture(program), folder / "memory.png")
    style.save(pool_picture(program), folder / "addresses.png")
    style.save(timeline_picture(program, timeline), folder / "timeline.png")
    if last is not None:
        draw_learning(folder / "digits.png", program, digits, losses, right, last)


def draw_learning(
    path: Path, program: Program, digits: Data, losses: Sequence[float], right: Sequence[float], last: Evaluation
) -> None:
    """Loss and accuracy, and some test images with what the network says they are, the doubtful ones first."""
    network = program.network
    with style.styled():
        about = f"{network.name}, batch {network.batch} · within {size(program.budget)} · digits from scikit-learn"
        title = f"It names {right[-1]:.1%} of new digits right"
        figure = style.new_figure(11, 7.2, title, about)
        upper, lower = figure.subfigures(2, 1, height_ratios=(1, 1.15), squeeze=False).flat
        left, other = upper.subplots(1, 2)
        _curve(left, losses, "loss (cross-entropy), batch by batch", digits)
        epochs = range(1, len(right) + 1)
        other.plot(epochs, right, "o-", color=style.BLUE)
        other.axhline(1 / digits.classes, color=style.PALE, linestyle=":", linewidth=1)
        other.text(len(right), 1 / digits.classes, "guessing", ha="right", va="bottom", color=style.PALE, fontsize=8)
        other.set(xlabel="epoch", ylim=(0, 1.05), xticks=list(epochs), title="share of test images named right")
        _digits(lower, digits, last)
    style.save(figure, path)


def _curve(axes: Axes, losses: Sequence[float], title: str, digits: Data) -> None:
    axes.plot(range(1, len(losses) + 1), losses, color=style.AMBER, linewidth=1)
    guess = float(np.log(digits.classes))
    axes.axhline(guess, color=style.PALE, linestyle=":", linewidth=1)
    axes.text(len(losses), guess, "guessing", ha="right", va="bottom", color=style.PALE, fontsize=8)
    axes.set(xlabel="iteration", ylim=(0, None), xlim=(1, len(losses)), title=title)


def _digits(figure: Any, digits: Data, last: Evaluation) -> None:
    """A row of the images that it was least sure of, and rows of others."""
    said, sure = last.predictions.argmax(axis=1), last.predictions.max(axis=1)
    doubtful = np.argsort(sure)[: SHOWN // 3]
    sure_ones = np.setdiff1d(np.arange(len(said)), doubtful)
    others = sure_ones[np.linspace(0, len(sure_ones) - 1, SHOWN - len(doubtful)).astype(int)]
    figure.suptitle("first row: the test images it is least sure of; in red: wrong", fontsize=9)
    panels = figure.subplots(3, SHOWN // 3).flat
    for axes, i in zip(panels, (*doubtful, *others), strict=True):
        wrong = said[i] != digits.test_labels[i]
        axes.imshow(digits.test_images[i, 0], cmap="gray_r")
        axes.set_axis_off()
        colour = style.VERMILION if wrong else style.INK
        axes.set_title(f"{said[i]}, {sure[i]:.0%}", loc="center", fontsize=8, color=colour)
