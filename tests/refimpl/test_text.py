"""Names that were probably meant, and counts as text."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from refimpl.text import closest, counted, harmless, one_line, shown, size

ROOT = Path(__file__).resolve().parents[2]
NODE = shutil.which("node")
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


def test_a_text_from_a_file_is_cut_and_commands_no_terminal() -> None:
    assert one_line("x" * 400) == "x" * 400 and one_line("x" * 401) == "x" * 400 + "…"
    evil = "a\n\tb\x1b[2J\0\u202e\udcff"
    assert one_line(evil) == r"a\n\tb\x1b[2J\x00\u202e\udcff" and harmless(evil) == "a\n\t" + one_line(evil[3:])
    assert shown("x" * 58) == repr("x" * 58) and shown("x" * 59) == "'" + "x" * 59 + "…"


def test_counts() -> None:
    said = [counted(number, what) for number, what in ((1, "warning"), (2, "copy"), (3, "launch"), (4000, "access"))]
    assert said == ["1 warning", "2 copies", "3 launches", "4,000 accesses"]
    assert [counted(number, "axis") for number in (1, 2)] == ["1 axis", "2 axes"]
    assert [size(nbytes) for nbytes in (0, 1, 2, 1000)] == ["0 bytes", "1 byte", "2 bytes", "1000 bytes"]


#: A count and a plural within a text: `{len(rows)} rows` would say "1 rows".
UNCOUNTED = re.compile(r"\{len\([^{}]*\)(?::,)?\} (?!is\b|was\b|has\b)[a-z]+s\b")


def test_nothing_counts_1_maps() -> None:
    sources = [*ROOT.glob("refimpl/**/*.py"), *ROOT.glob("refimpl/**/*.js")]
    found = {path.name: UNCOUNTED.findall(path.read_text("utf-8")) for path in sources}
    assert {name: bare for name, bare in found.items() if bare} == {}, "say refimpl.text.counted(len(...), 'map')"
    assert UNCOUNTED.search('f"{len(maps)} maps, {total}"') and UNCOUNTED.search('f"of {len(events):,} events"')


@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_the_page_counts_alike() -> None:
    script = (ROOT / "refimpl" / "report" / "page" / "text.js").read_text("utf-8")
    asked = 'console.log([size(1), size(2), counted(1, "map"), counted(2, "map")].join("; "));'
    done = subprocess.run([str(NODE), "-e", script + asked], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1 byte; 2 bytes; 1 map; 2 maps"


def test_the_largest_sizes_have_units() -> None:
    assert [size(3 << shift) for shift in (0, 10, 40, 50, 60)] == ["3 bytes", "3 KiB", "3 TiB", "3 PiB", "3 EiB"]
