"""The demo's data: figures of eight kinds, drawn somewhere in a small picture, in noise."""

from __future__ import annotations

import numpy as np

BATCH, SIDE = 32, 28
CLASSES = ("disc", "ring", "square", "cross", "lines —", "lines |", "lines /", "dots")


def draw(kind: str, random: np.random.Generator) -> np.ndarray:
    """One picture: a figure of this kind, somewhere, in some size, in noise."""
    row, column = np.mgrid[:SIDE, :SIDE].astype(float)
    top, left, size = random.uniform(10, 18), random.uniform(10, 18), random.uniform(5, 9)
    up, across = row - top, column - left
    far, period, phase = np.hypot(up, across), random.uniform(4, 7), random.uniform(0, 7)
    inside = np.maximum(abs(up), abs(across)) < size
    figure = {
        "disc": far < size,
        "ring": abs(far - size) < 1.5,
        "square": inside & (np.maximum(abs(up), abs(across)) > size - 2.5),
        "cross": inside & (np.minimum(abs(up), abs(across)) < 1.5),
        "lines —": (row + phase) % period < period / 2,
        "lines |": (column + phase) % period < period / 2,
        "lines /": (row + column + phase) % (1.4 * period) < 0.7 * period,
        "dots": ((row + phase) % period < 2) & ((column + phase) % period < 2),
    }[kind]
    return (figure - 0.5 + random.normal(0, 0.5, figure.shape)).astype(np.float32)


def batch(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    labels = random.integers(0, len(CLASSES), BATCH).astype(np.int32)
    return np.stack([draw(CLASSES[label], random)[None] for label in labels]), labels
