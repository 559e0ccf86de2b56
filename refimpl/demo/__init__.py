"""`make demo`: a small network trained with these kernels, checked against NumPy, and drawn.

The check runs the network once and asks the NumPy reference for every call's result from the same inputs, every
gradient included.  The training runs it some eighty times.  The pictures show what came of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from kernels import batchnorm, sgd
from kernels.launch import bind
from refimpl import listing
from refimpl.demo import pictures
from refimpl.demo.data import BATCH, batch
from refimpl.demo.network import BACKWARD, FORWARD, INFERENCE, NOISE, PARAMETERS, Arrays, make_arrays
from refimpl.devices import Device, device_of
from refimpl.terminal import progress, say, show

ITERATIONS = 80
TOLERANCE = 1e-4  #: largest difference from NumPy, as a share of the array's largest value


@dataclass(frozen=True)
class Difference:
    """How far one array is from NumPy's, as a share of its largest value."""

    direction: str
    call: str
    array: str
    shape: tuple[int, ...]
    share: float


def difference_table(differences: list[Difference]) -> tuple[list[str], list[list[str]]]:
    cells = [
        [
            d.direction,
            d.call,
            d.array,
            "×".join(map(str, d.shape)),
            f"{d.share:.1e}",
            "ok" if d.share < TOLERANCE else "FAR",
        ]
        for d in differences
    ]
    return ["", "call", "array", "shape", "difference", ""], cells


def compare(device: Device, arrays: Arrays, watch: Callable[[str], None]) -> list[Difference]:
    """Run the network once, forward and backward; after each call ask NumPy for the same from the same inputs."""
    found = []
    for direction, calls in (("forward", FORWARD), ("backward", BACKWARD)):
        for call in calls:
            watch(f"{direction} {call.name}")
            named = {*call.reads, *call.shapes.values()}
            given = {name: device.host(arrays[name]).copy() for name in named}
            call.run(arrays)
            for name, wanted in zip(call.writes, call.expected(given), strict=True):
                got = device.host(arrays[name])
                wanted = wanted.reshape(got.shape)  # behind a pool, fc's gradient still has the shape of a map
                share = float(abs(got - wanted).max() / max(abs(wanted).max(), 1e-30))
                found.append(Difference(direction, call.name, name, got.shape, share))
    return found


def train(device: Device, arrays: Arrays, random: np.random.Generator, watch: Callable[[str], None]) -> list[float]:
    """The loss of every iteration."""
    losses: list[float] = []
    for iteration in range(ITERATIONS):
        watch(f"loss {losses[-1]:.2f}" if losses else "")
        images, labels = batch(random)
        device.copy_in(images, arrays["images"])
        device.copy_in(labels, arrays["labels"])
        NOISE["iteration"] = iteration
        for call in (*FORWARD, *BACKWARD):
            call.run(arrays)
        batchnorm.update_running(
            arrays["mean"], arrays["inverse_std"], arrays["running_mean"], arrays["running_variance"],
            count=BATCH * 14 * 14, momentum=0.1,
        )  # fmt: skip
        for name in PARAMETERS:
            sgd.update(
                arrays[name], arrays[f"d{name}"], arrays[f"v{name}"],
                rate=0.02, momentum=0.9, decay=1e-4,
            )  # fmt: skip
        losses.append(float(device.host(arrays["loss"]).mean()))
    return losses


def test(device: Device, arrays: Arrays, random: np.random.Generator, batches: int = 8) -> float:
    """The share of new pictures that it names right, with the running statistics and without dropout."""
    right = 0
    for _ in range(batches):
        images, labels = batch(random)
        device.copy_in(images, arrays["images"])
        device.copy_in(labels, arrays["labels"])
        for call in INFERENCE:
            call.run(arrays)
        right += int((device.host(arrays["softmax"]).argmax(axis=1) == labels).sum())
    return right / (batches * BATCH)


def time_kernels(device: Device, arrays: Arrays) -> dict[str, float]:
    """Seconds that every kernel takes in one forward and backward pass, all its launches together."""
    taken: dict[str, float] = {}
    for call in (*FORWARD, *BACKWARD):
        for launch in bind(call.run, arrays):
            seconds = min(device.seconds(partial(launch.run, None), 3) for _ in range(3))
            taken[launch.kernel.name] = taken.get(launch.kernel.name, 0) + seconds
    return dict(sorted(taken.items(), key=lambda item: -item[1]))


def main(folder: Path) -> int:
    """Everything, one after the other; 1 if something differs from NumPy by more than rounding."""
    start = time.perf_counter()
    device, random = device_of(None), np.random.default_rng(1)
    folder.mkdir(parents=True, exist_ok=True)
    say(f"A small network on {device.name}.  The first time, its kernels are compiled, which takes a minute or two.")

    arrays = make_arrays(device)
    images, labels = batch(random)
    device.copy_in(images, arrays["images"])
    device.copy_in(labels, arrays["labels"])
    with progress("checking", len(FORWARD) + len(BACKWARD)) as advance:
        differences = compare(device, arrays, advance)
    show("every call beside NumPy, from the same inputs", *difference_table(differences))
    worst = max(differences, key=lambda d: d.share)
    say(f"Largest difference: {worst.share:.1e} of the largest value, in {worst.array}.\n")

    with progress("training", ITERATIONS) as advance:
        losses = train(device, arrays, random, advance)
    right = test(device, arrays, random)
    first, last = np.mean(losses[:5]), np.mean(losses[-5:])
    say(f"{ITERATIONS} iterations: the loss went from {first:.2f} to {last:.2f}.")
    say(f"{right:.0%} of new pictures are named right.\n")

    taken = time_kernels(device, arrays)
    show("every kernel there is", *listing.table(list(listing.rows())), wraps=["what it does"])
    pictures.draw_loss(folder / "loss.png", losses, right)
    pictures.draw_maps(folder / "maps.png", device, arrays)
    pictures.draw_times(folder / "kernels.png", device, taken)
    say(f"Pictures: {folder}/loss.png, {folder}/maps.png, {folder}/kernels.png")
    say(f"{time.perf_counter() - start:.0f} seconds")
    return 0 if worst.share < TOLERANCE else 1
