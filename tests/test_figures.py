"""Every figure that README and the documentation print in a sentence, beside what shows it: tests/data/figures.txt.

The file has a chapter a page and in it entries of this form:

    # docs/tune.md

    > goes up by a factor of 1.12
    $ python -c "from refimpl.accudnn import tuner; print(tuner.FACTOR)"
      1.12

`>` quotes the page, word for word.  What shows the quoted figures follows, and below it, indented by two, what it
prints; blanks and line breaks do not count.  Four things show a figure:

- `$` a command, of `refimpl` or Python, that takes less than a second: a test runs it;
- `~` one that takes longer: `pytest -m campaign tests/test_figures.py` runs it;
- `@` a file: a test that limits the figure, a measurement, a paper's published figures; what is below is in the file;
- `!` a command that measures time on this machine, or needs hours: it is understood, and not run.

A test finds the sentences with a figure that have no entry.  A sentence that names its command or its test itself
needs none, and neither does what a command writes into the page.
"""

from __future__ import annotations

import functools
import io
import re
import shlex
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from refimpl import cli

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "tests" / "data" / "figures.txt"
PAGES = ["README.md", *(path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").glob("*.md"))),
         *(path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs" / "slots").glob("*.md")))]  # fmt: skip


# -- the file ----------------------------------------------------------------------------------------------------------


@dataclass
class Shown:
    """What shows a figure: a command or a file, and fragments of what it prints."""

    how: str  #: $, ~, @ or !
    what: str
    fragments: list[str] = field(default_factory=list)


@dataclass
class Entry:
    page: str
    quote: str
    shown: list[Shown] = field(default_factory=list)


def one_line(text: str) -> str:
    return " ".join(text.split())


def parse(text: str) -> list[Entry]:
    """The entries of a file of figures."""
    entries: list[Entry] = []
    page, quoting = "", False
    for number, line in enumerate(text.splitlines(), 1):
        sign, rest = line[:2], line[2:].strip()
        if sign == "# ":
            page = rest
        elif sign == "> " and quoting:
            entries[-1].quote += " " + rest
        elif sign == "> ":
            entries.append(Entry(page, rest))
        elif sign in ("$ ", "~ ", "@ ", "! "):
            entries[-1].shown.append(Shown(sign[0], rest))
        elif sign == "  ":
            entries[-1].shown[-1].fragments.append(rest)
        else:
            assert not line.strip(), f"line {number} of the figures begins with none of # > $ ~ @ ! and two blanks"
        quoting = sign == "> "
    return entries


ENTRIES = parse(FILE.read_text(encoding="utf-8"))

# -- numbers -----------------------------------------------------------------------------------------------------------

#: A number for itself: not that of VGG-16(256), conv2_1 or 2026-11-21.
NUMBER = re.compile(r"(?<![\w.,/^²-])(?<!\w\()\d[\d,]*(?:\.\d+)?(?![\w-]*[\d-])")


def numbers(text: str) -> list[str]:
    return [found.rstrip(",").replace(",", "") for found in NUMBER.findall(text)]


def rounds_to(number: str, printed: str) -> bool:
    """Whether a sentence may say `number` for what is printed."""
    digits = len(number.partition(".")[2])
    return abs(float(number) - float(printed)) <= 0.5 * 10**-digits + 1e-9


def unfounded(entry: Entry) -> list[str]:
    """The numbers of a quote that neither its commands nor their output have; 0.04 and 1.04 are 4 %."""
    known = [one for shown in entry.shown for text in (shown.what, *shown.fragments)
             for one in re.findall(r"\d+(?:\.\d+)?", re.sub(r"(?<=\d)[,_](?=\d)", "", text))]  # fmt: skip
    known += [f"{100 * (float(one) % 1):g}" for one in known if float(one) < 2]
    return [number for number in numbers(entry.quote) if not any(rounds_to(number, one) for one in known)]


# -- what shows them ---------------------------------------------------------------------------------------------------


@functools.cache
def printed(command: str) -> str:
    """The output of a command of refimpl or of `python -c`, in one line."""
    words, out = shlex.split(command), io.StringIO()
    with redirect_stdout(out):
        if words[:2] == ["python", "-c"]:
            exec(compile(words[2], command, "exec"), {"__name__": "figures"})
        else:
            cli.main(words[1:])
    return one_line(out.getvalue())


def missing(shown: Shown, root: Path = ROOT) -> list[str]:
    """The fragments that are not shown."""
    text = one_line((root / shown.what).read_text(encoding="utf-8")) if shown.how == "@" else printed(shown.what)
    return [fragment for fragment in shown.fragments if one_line(fragment) not in text]


# -- pages -------------------------------------------------------------------------------------------------------------

UNITS = (
    "%|×|times|[KMGT]i?B|[KMG]?B/s|[GT]FLOP/s|ms|s|µs|seconds?|minutes|hours|points|maps|plans|networks|bytes|tests|"
    "lines|models|cases|kernels|trainings|programs|instructions"
)
#: A number with a unit, with decimals, or above a thousand.
FIGURE = re.compile(rf"{NUMBER.pattern}(?:(?<=\.\d)|(?<=\.\d\d)|(?<=[.,]\d\d\d)|\s(?:{UNITS})(?![\w/]))")
NAMES = re.compile(r"`[^`]*`|\]\([^)]*\)|arXiv [\d.]+|doi [\d./A-Z]+|Python 3\.\d+|§[\d.]+")
#: Its own command, or its own test.
OWN = re.compile(r"`(?:refimpl|pytest|make|mpiexec|python) [^`]+`|\b(?:tests|docs)/[\w/]+\.py")


END = re.compile(r"(?<=[.?!])\s+(?=[A-Z`*(\[])")  #: of a sentence


def body(text: str) -> str:
    """A page without code, headings and what commands write into it."""
    text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)
    text = re.sub(r"<!-- begin (.*?) -->.*?<!-- end \1 -->", "", text, flags=re.DOTALL)
    text = re.sub(r"^<!-- campaign: \w+ -->\n\s*(?:\|[^\n]*\n)+", "", text, flags=re.MULTILINE)
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"^(?:    .*|#.*)$", "", text, flags=re.MULTILINE)


def sentences(text: str) -> Iterator[tuple[str, str]]:
    """Sentences, items of lists, and whole tables, each in one line; with a table, the paragraph above it."""
    above = ""
    for block in re.split(r"\n\s*\n|\n(?=- |\d+\. )", body(text)):
        if block.lstrip().startswith("|"):
            yield one_line(block), above
        else:
            above = one_line(block)
            yield from ((sentence, sentence) for sentence in END.split(above))


def uncovered(text: str, quotes: list[str]) -> list[str]:
    """The sentences of a page with a figure that are not quoted, not even in part."""
    quoted = [part for quote in quotes for part in END.split(quote)]
    return [
        sentence
        for sentence, above in sentences(text)
        if FIGURE.search(NAMES.sub(" ", sentence))
        and not OWN.search(sentence + above)
        and not any(part in sentence for part in quoted)
    ]


# -- tests -------------------------------------------------------------------------------------------------------------


def of_page(page: str) -> list[Entry]:
    return [entry for entry in ENTRIES if entry.page == page]


@pytest.mark.parametrize("page", PAGES)
def test_every_figure_in_a_sentence_has_what_shows_it(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert uncovered(text, [entry.quote for entry in of_page(page)]) == [], "add an entry to tests/data/figures.txt"


@pytest.mark.parametrize("page", dict.fromkeys(entry.page for entry in ENTRIES))
def test_pages_say_what_the_file_quotes(page: str) -> None:
    text = one_line((ROOT / page).read_text(encoding="utf-8"))
    assert [entry.quote for entry in of_page(page) if entry.quote not in text] == []


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: f"{entry.page}-{entry.quote[:40]}")
def test_what_is_shown_has_the_numbers_of_the_sentence(entry: Entry) -> None:
    assert entry.shown and all(shown.fragments or shown.how == "!" for shown in entry.shown)
    assert unfounded(entry) == [], "no number of the command or of its output rounds to it"
    for shown in entry.shown:
        words = shlex.split(shown.what)
        if shown.how == "@":
            assert missing(shown) == []
        elif words[0] == "refimpl":
            cli.parser().parse_args(words[1:])
        else:
            assert words[0] in ("python", "pytest", "make", "mpiexec")


@pytest.mark.slow
@pytest.mark.parametrize("page", dict.fromkeys(e.page for e in ENTRIES if any(s.how == "$" for s in e.shown)))
def test_commands_print_the_figures(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert {shown.what: lost for entry in of_page(page) for shown in entry.shown
            if shown.how == "$" and (lost := missing(shown))} == {}  # fmt: skip


@pytest.mark.campaign
@pytest.mark.parametrize("command", dict.fromkeys(s.what for e in ENTRIES for s in e.shown if s.how == "~"))
def test_long_commands_print_the_figures(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    same = [shown for entry in ENTRIES for shown in entry.shown if (shown.how, shown.what) == ("~", command)]
    assert [lost for shown in same for lost in missing(shown)] == []


# -- the test itself ---------------------------------------------------------------------------------------------------

SAMPLE = """
# page.md

> saves 91 % of 1,200 MiB
$ python -c "print('saved', 457 / 5, '%'); print('of', 600 * 2, 'MiB')"
  saved 91.4 %   of
  1200 MiB
"""


def test_a_figure_that_changes_is_found() -> None:
    (entry,) = parse(SAMPLE)
    assert (entry.page, entry.quote, unfounded(entry)) == ("page.md", "saves 91 % of 1,200 MiB", [])
    (shown,) = entry.shown
    assert missing(shown) == []
    shown.fragments[0] = "saved 92.4 %"
    assert missing(shown) == ["saved 92.4 %"] and unfounded(entry) == ["91"]
    assert uncovered("It saves 91 % of\n1,200 MiB.", [entry.quote]) == []
    assert uncovered("It saves 92 % of\n1,200 MiB.", [entry.quote]) == ["It saves 92 % of 1,200 MiB."]


@pytest.mark.parametrize(
    ("sentence", "needs"),
    [
        ("It takes 3 ms.", True),
        ("It is 1.49 of the other.", True),
        ("VGG-16(256) fits 12 GiB.", True),
        ("VGG-16 with 256 images fits.", False),
        ("A 3×3 filter, as in §3.3 and arXiv 1602.08124.", False),
        ("`refimpl plan lenet` takes 3 ms.", False),
        ("conv2_1 and step 12 of 2026-11-21.", False),
        ("| a | 3 ms |\n| b | 4 ms |", True),
    ],
)
def test_which_sentences_need_an_entry(sentence: str, needs: bool) -> None:
    assert bool(uncovered(sentence, [])) == needs
