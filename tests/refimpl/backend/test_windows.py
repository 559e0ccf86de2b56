"""Windows of a text: what is learnt from them, what is kept for testing, and what a trained network makes of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from refimpl import data
from refimpl.backend.windows import SyntheticTokens, TextWindows, WindowTask, text_windows
from refimpl.names.networks import lenet, tiny_bert, tiny_gpt
from refimpl.network import Network
from tests.messages import raises_naming

TOKENS = 8


def gpt(**sizes: Any) -> Network:
    return tiny_gpt(**({"batch": 8, "tokens": TOKENS, "width": 32} | sizes))


def bert(**sizes: Any) -> Network:
    return tiny_bert(**({"batch": 8, "tokens": TOKENS, "width": 32} | sizes))


@pytest.fixture
def written(tmp_path: Path) -> Callable[[bytes], Path]:
    def write(text: bytes) -> Path:
        path = tmp_path / "mine.txt"
        path.write_bytes(text)
        return path

    return write


def test_the_label_of_a_token_is_the_one_after_it(written: Callable[[bytes], Path]) -> None:
    text = bytes(np.random.default_rng(1).integers(0, 256, 900, np.uint8))
    source = text_windows(gpt(), written(text))
    for iteration in range(20):
        for tokens, labels in zip(*source.batch(8, iteration), strict=True):
            place = text.find(bytes(tokens.astype(np.uint8)))
            assert 0 <= place and bytes(labels.astype(np.uint8)) == text[place + 1 : place + 1 + TOKENS]


@pytest.mark.parametrize("make", [gpt, bert])
@pytest.mark.parametrize("validation", [None, 0.3])
def test_the_end_of_a_text_is_tested_with_and_not_learnt_from(
    make: Any, validation: float | None, written: Callable[[bytes], Path]
) -> None:
    """The bytes of the last part are others; a window that reached into it would show them."""
    share = validation or 0.1
    text = np.where(np.arange(1000) < round(1000 * (1 - share)), 10, 200).astype(np.uint8)
    source = text_windows(make(), written(text.tobytes()), validation)
    for iteration in range(50):
        tokens, labels = source.batch(8, iteration)
        seen = np.where(labels >= 0, labels, 10)
        assert {*np.unique(seen)} == {10}
        assert 200 not in tokens if make is gpt else (tokens == 200).mean() < 0.01  # any byte may be put for another
    counts = source.test_labels >= 0
    assert {*np.unique(source.test_labels[counts])} == {200}
    assert len(source.test_images) == (round(1000 * share) - (make is gpt)) // TOKENS
    assert len(source.train) + len(source.test) == 1000


def text_of_numbers(make: Any) -> TextWindows:
    return TextWindows(np.arange(251, dtype=np.uint8), np.arange(100, dtype=np.uint8), WindowTask.of(make()))


def test_a_batch_follows_from_seed_and_iteration() -> None:
    for source in (text_of_numbers(gpt), text_of_numbers(bert), SyntheticTokens.of(gpt()), SyntheticTokens.of(bert())):
        first = source.batch(4, 7, seed=3)
        for again, other in (
            (source.batch(4, 7, seed=3), False),
            (source.batch(4, 8, 3), True),
            (source.batch(4, 7), True),
        ):
            assert (again[0].tobytes() != first[0].tobytes()) == other
            assert first[1].shape == (4, TOKENS) and first[0].dtype == first[1].dtype == np.int32


def test_of_the_masked_tokens_some_stay_and_some_are_others() -> None:
    """15 % are told; 80 % of them are masked, 10 % others: 1/256 of these the same again."""
    task = WindowTask.of(bert(tokens=64))
    spans = np.random.default_rng(0).integers(0, 256, (2000, 64), np.int32)
    shown, labels = task.learnt_from(spans, np.random.default_rng(1))
    told = labels != task.ignored
    assert task.words == 256 and task.masked and told.any(axis=1).all()
    np.testing.assert_array_equal(labels[told], spans[told])
    np.testing.assert_array_equal(shown[~told], spans[~told])
    masked, same = (shown == 256)[told].mean(), (shown == spans)[told].mean()
    assert told.mean() == pytest.approx(0.163, abs=0.01)  # and one more a window: of 64 1/64 × 85 %
    assert (masked, same) == (pytest.approx(0.8, abs=0.01), pytest.approx(0.1, abs=0.01))


def test_what_is_no_text_for_a_network_is_one_line(written: Callable[[bytes], Path], tmp_path: Path) -> None:
    short = written(b"x" * 17)
    with raises_naming(data.DataError, short, 17, "tiny-gpt", 18):
        text_windows(gpt(), short)
    assert len(text_windows(gpt(), written(b"x" * 18)).test_images) == 1
    with raises_naming(data.DataError, 1, 9):
        text_windows(gpt(), short, validation=written(b"x"))
    with raises_naming(data.DataError, "byte 200", "place 1,000", "tiny-gpt", "0 to 99", "256 words"):
        text_windows(gpt(words=100), written(b"a" * 1000 + b"\xc8" + b"a" * 1000))
    with raises_naming(data.DataError, "byte 97", "0 to 95", "mask", "257 words"):
        text_windows(bert(words=97), written(b"a" * 1000))
    for path in (tmp_path, tmp_path / "none.txt"):
        with raises_naming(data.DataError, path):
            text_windows(gpt(), path)
    for share in (0.0, 1.0, -2.0):
        with raises_naming(data.DataError, "share", f"{share:g}"):
            text_windows(gpt(), short, share)
    with raises_naming(data.DataError, "lenet", "tokens", "tiny-gpt"):
        text_windows(lenet(), short)


def test_the_windows_to_test_with_follow_each_other(written: Callable[[bytes], Path]) -> None:
    """Windows of 8 tokens, of which the next one is the last label: 26 bytes have three, 24 have two."""
    for count, windows_there in ((26, 3), (25, 3), (24, 2), (9, 1)):
        source = TextWindows(np.arange(50, dtype=np.uint8), np.arange(count, dtype=np.uint8), WindowTask.of(gpt()))
        assert source.test_images.tolist() == [[*range(8 * n, 8 * n + 8)] for n in range(windows_there)]
        assert source.test_labels.tolist() == [[*range(8 * n + 1, 8 * n + 9)] for n in range(windows_there)]


@pytest.mark.parametrize(("share", "tested"), [(None, 10), (0.3, 30), (0.01, 9), (0.99, 91)])
def test_the_share_to_test_with_leaves_a_window_on_either_side(
    share: float | None, tested: int, written: Callable[[bytes], Path]
) -> None:
    source = text_windows(gpt(), written(bytes(range(100))), share)
    assert source.test.tolist() == [*range(100 - tested, 100)] and source.train.tolist() == [*range(100 - tested)]
