"""Training data of networks that read tokens: windows of a text, each byte a token, or of synthetic tokens.

A network whose attention sees only what is before a token learns the next token, at every place of a window at once.
One whose attention sees everything learns masked tokens: 15 % of a window's are to be told, and of these 80 % are
replaced by the mask, 10 % by any other token, and 10 % stay as they are (Devlin and others, "BERT", 2019).  The mask is
the last word of the network's table.

    source = text_windows(network)              # the project's own documentation, in a clone
    source = text_windows(network, "mine.txt")
    tokens, labels = source.batch(16, iteration=417)
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from refimpl import text
from refimpl.backend.run_errors import DataError
from refimpl.network import Network
from refimpl.text import counted

#: Windows of tokens, int32, (windows, tokens); and labels of the same shape.
TokenBatch = tuple[np.ndarray, np.ndarray]

CHOSEN, MASKED, OTHER = 0.15, 0.8, 0.1  #: tokens to tell, and the shares of them that are replaced
TEST_SHARE = 0.1  #: of a text, its end: tested with, and not trained on
TEST_WINDOWS = 256  #: of them at most, spread evenly
OWN_TEXT = "text"  #: the name of the project's own documentation


@dataclass(frozen=True)
class WindowTask:
    """What a network learns from windows of tokens."""

    network: str  #: its name
    tokens: int  #: of a window
    words: int  #: that may be in it: the table's, without the mask
    masked: bool  #: whether masked tokens are to be told, and not each next one
    ignored: int  #: the label of a token that is not to be told

    @classmethod
    def of(cls, network: Network) -> WindowTask:
        """Of a network that reads one input of tokens, and compares with a label a token."""
        x, output = network.input, network.output
        if len(network.given) != 2 or x.dtype != "int32" or output.labels.shape[1:] != (*x.shape[1:], 1):
            raise DataError(
                f"{network.name} does not read a text: that takes one input of tokens and a pixel_softmax with a label "
                "for each, as in tiny-gpt"
            )
        masked = any(layer.options.get("causal") is False and layer.kind != "mix" for layer in network.layers)
        words = min(network.words(x), output.classes) - masked
        assert output.ignore_index is not None
        return cls(network.name, x.shape[1], words, masked, output.ignore_index)

    @property
    def span(self) -> int:
        """Tokens of the text that a window takes: of the next tokens the last one is beyond the window."""
        return self.tokens + (not self.masked)

    def learnt_from(self, spans: np.ndarray, random: np.random.Generator) -> TokenBatch:
        """Windows and their labels, from `span` tokens of the text each."""
        if not self.masked:
            return spans[:, :-1], spans[:, 1:]
        chosen = random.random(spans.shape) < CHOSEN
        chosen[np.arange(len(spans)), random.integers(0, self.tokens, len(spans))] = True  # at least one a window
        how = random.random(spans.shape)
        others = random.integers(0, self.words, spans.shape, np.int32)
        shown = np.where(chosen & (how < MASKED), np.int32(self.words), spans)
        shown = np.where(chosen & (how >= 1 - OTHER), others, shown)
        return shown, np.where(chosen, spans, np.int32(self.ignored))


def _spans(tokens: np.ndarray, starts: np.ndarray, length: int) -> np.ndarray:
    found: np.ndarray = tokens[starts[:, None] + np.arange(length)].astype(np.int32)
    return found


# -- a text ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TextWindows:
    """Windows that begin anywhere in a text; its end is kept for testing."""

    train: np.ndarray  #: bytes
    test: np.ndarray
    task: WindowTask

    def per_epoch(self, batch: int) -> int:
        """Batches that have about as many tokens as the text."""
        return max(1, len(self.train) // (batch * self.task.tokens))

    def batch(self, batch: int, iteration: int, seed: int = 0) -> TokenBatch:
        random = np.random.default_rng((seed, iteration))
        starts = random.integers(0, len(self.train) - self.task.span + 1, batch)
        return self.task.learnt_from(_spans(self.train, starts, self.task.span), random)

    @property
    def tests(self) -> TokenBatch:
        """Windows of the text's end that do not overlap, the same ones every time, and their labels."""
        count = (len(self.test) - self.task.span) // self.task.tokens + 1
        chosen = np.unique(np.linspace(0, count - 1, min(count, TEST_WINDOWS)).astype(int))
        spans = _spans(self.test, self.task.tokens * chosen, self.task.span)
        return self.task.learnt_from(spans, np.random.default_rng(0))

    @property
    def test_images(self) -> np.ndarray:
        """The windows to test with, as a trainer takes them."""
        return self.tests[0]

    @property
    def test_labels(self) -> np.ndarray:
        return self.tests[1]


def text_windows(
    network: Network, path: str | Path = OWN_TEXT, validation: str | Path | float | None = None
) -> TextWindows:
    """Windows of a text for this network.

    Args:
        network: of one input of tokens, which has a label a token.
        path: a file, of which every byte is a token; "text": the project's own documentation.
        validation: another file to test with, or the share of this one, its end (None: a tenth).
    """
    task = WindowTask.of(network)
    whole = _read(path, task)
    if isinstance(validation, str | Path):
        _check_length(validation, other := _read(validation, task), 1, task)
        _check_length(path, whole, 1, task)
        return TextWindows(whole, other, task)
    share = TEST_SHARE if validation is None else validation
    if not 0 < share < 1:
        raise DataError(f"a share of {share:g} of a text cannot be kept for testing; give one between 0 and 1")
    _check_length(path, whole, 2, task)
    tested = min(max(task.span, round(share * len(whole))), len(whole) - task.span)
    return TextWindows(whole[:-tested], whole[-tested:], task)


def _check_length(path: str | Path, found: np.ndarray, windows: int, task: WindowTask) -> None:
    if len(found) < windows * task.span:
        what = "a window" if windows == 1 else "a window to learn from and another to test with"
        raise DataError(
            f"{path} has {counted(len(found), 'byte')}; {task.network} takes {windows * task.span}, {what}: give a "
            "longer text"
        )


def _read(path: str | Path, task: WindowTask) -> np.ndarray:
    found = np.frombuffer(_documentation() if path == OWN_TEXT else _contents(path), np.uint8)
    beyond = found >= task.words
    if beyond.any():
        first, mask = int(beyond.argmax()), ", and one more for the mask" * task.masked
        raise DataError(
            f"{path} has the byte {found[first]} at place {first:,}, and {task.network} has words 0 to "
            f"{task.words - 1}{mask}: give a text of those, or a network of {256 + task.masked} words"
        )
    return found


def _contents(path: str | Path) -> bytes:
    try:
        with text.opened(path, sys.maxsize) as file:
            return file.read()
    except FileNotFoundError:
        raise DataError(f"there is no file {path}") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from None


def _documentation() -> bytes:
    """README and the pages of docs/, which are in a clone of the project, and not in what pip installs."""
    root = Path(__file__).resolve().parents[2]
    pages = sorted((root / "docs").glob("*.md")) if (root / "docs" / "vdnn.md").exists() else []
    if not pages:
        raise DataError(
            "the project's documentation is in a clone of it alone: give a text of your own, --data FILE.txt"
        )
    return b"\n".join(page.read_bytes() for page in (root / "README.md", *pages))


# -- synthetic tokens --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SyntheticTokens:
    """Windows drawn on request: after every word comes another one that follows from it, nine times in ten.

    There is no end to them and nothing is stored: `batches` only says how many make an epoch.
    """

    task: WindowTask
    batches: int = 100
    seed: int = 0

    @classmethod
    def of(cls, network: Network, seed: int = 0) -> SyntheticTokens:
        """For a network."""
        return cls(WindowTask.of(network), seed=seed)

    def per_epoch(self, batch: int) -> int:
        return self.batches

    def batch(self, batch: int, iteration: int, seed: int = 0) -> TokenBatch:
        random = np.random.default_rng((self.seed, seed, iteration))
        following = np.random.default_rng((self.seed, 1 << 20)).permutation(self.task.words)
        spans = random.integers(0, self.task.words, (batch, self.task.span), np.int32)
        surprising = random.random(spans.shape) < 0.1
        for place in range(1, self.task.span):
            spans[:, place] = np.where(surprising[:, place], spans[:, place], following[spans[:, place - 1]])
        return self.task.learnt_from(spans, random)
