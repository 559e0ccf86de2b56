"""What a trained network makes of a text: the bytes that it writes, or those that it puts in place of masked ones.

Both ask the forward-only network for the probabilities of every word at every place of a window.
"""

from __future__ import annotations

import numpy as np

from refimpl.backend.run_errors import RunError
from refimpl.backend.trainer import Trainer
from refimpl.backend.windows import WindowTask

BYTES = 256


def write_on(trainer: Trainer, start: bytes, count: int, temperature: float = 0.0, seed: int = 0) -> bytes:
    """The bytes that a network which tells the next one writes after a beginning.

    Each byte takes a whole forward pass, of as much of the text as a window holds.

    Args:
        trainer: of a network whose tokens are bytes.
        start: at least one byte.
        count: bytes to write.
        temperature: 0 takes the most probable byte every time; 1 draws by the network's probabilities, and numbers
            between make what is probable more so.
        seed: of the draws.
    """
    task, random = WindowTask.of(trainer.network), np.random.default_rng(seed)
    if task.masked:
        raise RunError(f"{task.network} tells masked tokens, and writes none")
    written = [*start]
    for _ in range(count):
        seen = written[-task.tokens :]
        window = np.array([seen + [0] * (task.tokens - len(seen))], np.int32)  # what comes later is not seen
        found = _probabilities(trainer, window)[0, :BYTES, len(seen) - 1]
        written.append(_drawn(found, temperature, random))
    return bytes(written[len(start) :])


def fill_in(trainer: Trainer, window: np.ndarray) -> np.ndarray:
    """The most probable word of every place that is masked; the others as they are.

    Args:
        trainer: of a network that tells masked tokens.
        window: its tokens.
    """
    task = WindowTask.of(trainer.network)
    if not task.masked:
        raise RunError(f"{task.network} tells next tokens, and fills in none")
    told = _probabilities(trainer, window[None])[0, : task.words].argmax(0)
    return np.where(window == task.words, told, window)


def _probabilities(trainer: Trainer, windows: np.ndarray) -> np.ndarray:
    """(windows, words, tokens)."""
    return trainer.evaluate(windows, np.zeros_like(windows)).predictions[..., 0]


def _drawn(probabilities: np.ndarray, temperature: float, random: np.random.Generator) -> int:
    if not temperature:
        return int(probabilities.argmax())
    logits = np.log(np.maximum(probabilities.astype(np.float64), 1e-30)) / temperature
    shares = np.exp(logits - logits.max())
    return int(random.choice(len(shares), p=shares / shares.sum()))
