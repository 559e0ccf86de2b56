"""Windows of a text: what is learnt from them, what is kept for testing, and what a trained network makes of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import refimpl
from refimpl import data
from refimpl.backend import RunError, windows
from refimpl.backend.windows import TEST_WINDOWS, SyntheticTokens, TextWindows, WindowTask, text_windows
from refimpl.backend.writing import fill_in, write_on
from refimpl.names.networks import lenet, tiny_bert, tiny_gpt, tiny_llama
from refimpl.network import Builder, Network, NetworkError
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


def test_every_place_of_a_text_is_learnt_from() -> None:
    source = text_of_numbers(gpt)
    begun = {int(tokens[0]) for i in range(400) for tokens in source.batch(8, i)[0]}
    assert begun == {*range(251 - TOKENS)}


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


def test_many_windows_are_tested_with_a_few_of_them() -> None:
    end = (np.arange(10**5) % 251).astype(np.uint8)
    source = TextWindows(end, end, WindowTask.of(gpt()))
    assert len(source.test_images) == TEST_WINDOWS
    assert bytes(source.test_images[-1].astype(np.uint8)) in bytes(end[-3 * TOKENS :])


def test_the_documentation_is_a_text_and_is_missing_where_only_the_package_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = data.text_windows(gpt())
    assert bytes(source.train[:200]).decode().startswith("# ") and len(source.train) > 200_000
    monkeypatch.setattr(windows, "__file__", str(tmp_path / "refimpl" / "backend" / "windows.py"))
    with raises_naming(data.DataError, "documentation", "--data FILE.txt"):
        data.text_windows(gpt())


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


def test_what_cannot_be_a_transformer_is_one_line() -> None:
    with raises_naming(NetworkError, "1.attention", "96 channels", 15):
        gpt(heads=5)
    with raises_naming(NetworkError, "1.rotary", 4, 3):
        tiny_llama(kv_heads=3)
    b = Builder("crossed", (2, 12, 6, 1))
    queries = b.conv(12, 1)
    fewer = b.take(4, axis=2, after=b.input)
    keys, values = b.conv(12, 1, after=fewer), b.conv(12, 1, after=fewer)
    with raises_naming(NetworkError, "causal", 6, 4):
        b.attention(2, causal=True, keys=keys, values=values, after=queries)


# -- what a trained network makes of it --------------------------------------------------------------------------------

LETTERS = b"abcdef"


@pytest.fixture(scope="module", params=[gpt, bert])
def learnt(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A network that has learnt the same letters again and again."""
    path = tmp_path_factory.mktemp("text") / "letters.txt"
    path.write_bytes(LETTERS * 200)
    network = request.param(batch=16, layers=1).trained_by("adamw")
    source = text_windows(network, path)
    with refimpl.Trainer(refimpl.plan(network, "vdnn-all", "h100"), "cpu", rate=3e-3) as trainer:
        for iteration in range(150):
            trainer.step(*source.batch(16, iteration))
        yield trainer, source


@pytest.mark.slow
def test_it_writes_on_or_fills_in_what_it_has_learnt(learnt: Any) -> None:
    """Longer than a window, too; the other of the two is refused."""
    trainer, source = learnt
    evaluation = trainer.evaluate(source.test_images, source.test_labels)
    assert evaluation.accuracy > 0.8
    if source.task.masked:
        window = np.frombuffer(b"defabcde", np.uint8).astype(np.int32)
        masked = np.where(np.arange(TOKENS) == 3, 256, window)
        np.testing.assert_array_equal(fill_in(trainer, masked), window)
        with raises_naming(RunError, "tiny-bert", "masked"):
            write_on(trainer, b"abc", 1)
        return
    assert write_on(trainer, b"abc", 30) == (LETTERS * 6)[3:33]
    drawn = [write_on(trainer, b"abc", 20, 5.0, seed) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2] and re.fullmatch(rb"(?s).{20}", drawn[2])
    assert write_on(trainer, b"abc", 20, 0.01) == (LETTERS * 6)[3:23]
    with raises_naming(RunError, "tiny-gpt", "next"):
        fill_in(trainer, np.zeros(TOKENS, np.int32))


# -- how many, and of which text ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("batch", "batches"), [(1, 31), (4, 7), (31, 1), (32, 1), (1000, 1)])
def test_an_epoch_has_about_as_many_tokens_as_the_text(batch: int, batches: int) -> None:
    source = text_of_numbers(gpt)  # 251 bytes, windows of 8
    assert source.per_epoch(batch) == batches
    assert (source.shape, source.classes, source.target, source.label_shape) == ((8,), 256, "pixel", (8, 1))


@pytest.mark.parametrize("source", [text_of_numbers(gpt), SyntheticTokens.of(gpt())], ids=["text", "synthetic"])
@pytest.mark.parametrize("batch", [0, -2])
def test_a_batch_of_no_window_is_refused(source: Any, batch: int) -> None:
    with raises_naming(data.DataError, batch, 1):
        source.batch(batch, 0)
    assert SyntheticTokens.of(gpt()).per_epoch(3) == 100


def test_the_windows_to_test_with_follow_each_other(written: Callable[[bytes], Path]) -> None:
    """Windows of 8 tokens, of which the next one is the last label: 26 bytes have three, 24 have two."""
    for count, windows_there in ((26, 3), (25, 3), (24, 2), (9, 1)):
        source = TextWindows(np.arange(50, dtype=np.uint8), np.arange(count, dtype=np.uint8), WindowTask.of(gpt()))
        assert source.test_images.tolist() == [[*range(8 * n, 8 * n + 8)] for n in range(windows_there)]
        assert source.test_labels.tolist() == [[*range(8 * n + 1, 8 * n + 9)] for n in range(windows_there)]


def test_another_text_can_be_tested_with(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_bytes(b"abcdefghi")
    (tmp_path / "other.txt").write_bytes(b"ABCDEFGHIJ")
    source = text_windows(gpt(), tmp_path / "mine.txt", validation=tmp_path / "other.txt")
    assert bytes(source.train.tobytes()) == b"abcdefghi" and bytes(source.test.tobytes()) == b"ABCDEFGHIJ"
    (tmp_path / "mine.txt").write_bytes(b"abcdefgh")
    with raises_naming(data.DataError, tmp_path / "mine.txt", 8, 9):
        text_windows(gpt(), tmp_path / "mine.txt", validation=tmp_path / "other.txt")


@pytest.mark.parametrize(("share", "tested"), [(None, 10), (0.3, 30), (0.01, 9), (0.99, 91)])
def test_the_share_to_test_with_leaves_a_window_on_either_side(
    share: float | None, tested: int, written: Callable[[bytes], Path]
) -> None:
    source = text_windows(gpt(), written(bytes(range(100))), share)
    assert source.test.tolist() == [*range(100 - tested, 100)] and source.train.tolist() == [*range(100 - tested)]


def test_synthetic_words_follow_each_other_nine_times_in_ten() -> None:
    tokens, labels = SyntheticTokens.of(gpt(batch=64, tokens=32)).batch(64, 0)
    np.testing.assert_array_equal(tokens[:, 1:], labels[:, :-1])
    after: dict[int, list[int]] = {}
    for one, other in zip(tokens.ravel(), labels.ravel(), strict=True):
        after.setdefault(int(one), []).append(int(other))
    most = sum(max(map(found.count, found)) for found in after.values()) / tokens.size
    assert 0.87 < most < 0.95
