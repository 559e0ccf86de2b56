"""Names that were probably meant, and counts as text."""

from __future__ import annotations

import pytest

from refimpl.text import closest, counted, size

NAMES = ("vgg16", "vgg116", "resnet50", "resnet152", "titan-x", "h100", "layer-wise")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("layerwise", "layer-wise"),
        ("titanx", "titan-x"),
        ("resnet", "resnet50"),
        ("h10", "h100"),
        ("vgg161", "vgg16"),
        ("resnet18", None),
        ("resnet51", None),
        ("vgg19", None),
        ("transformer!", None),
        ("x" * 5000, None),
    ],
)
def test_a_number_apart_is_no_slip_unless_a_digit_is_missing(name: str, meant: str | None) -> None:
    assert closest(name, NAMES) == meant


def test_counts() -> None:
    said = [counted(number, what) for number, what in ((1, "warning"), (2, "copy"), (3, "launch"), (4000, "access"))]
    assert said == ["1 warning", "2 copies", "3 launches", "4,000 accesses"]


def test_the_largest_sizes_have_units() -> None:
    assert [size(3 << shift) for shift in (0, 10, 40, 50, 60)] == ["3 bytes", "3 KiB", "3 TiB", "3 PiB", "3 EiB"]
