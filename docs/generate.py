"""The pages made from the code, and what the site's copy of a page has that GitHub's does not."""

from __future__ import annotations

import ast
import posixpath
import re
from pathlib import Path

from refimpl.report import kernels_table as listing
from refimpl.report.markdown import markdown_table

KERNELS = """\
# The kernels

Every kernel there is, as `refimpl list kernels --markdown` prints it: for each file below `kernels/` what it computes,
then its kernels, each with the block of threads that it is always launched with.

"""

MEASUREMENTS = """\
# Measurements

Everything that `refimpl bench --write` has measured and kept, a page for each machine and day.

"""


#: Part → the files to read, in this order → what stopped a reader who did not know the project, and what was mended.
#: A file that a second part names is read to its end there.
READING = {
    "vDNN by hand": {
        "refimpl/executor.py": "setup, step, managed: the docstring has them; `facts`: now `context`",
        "refimpl/streams.py": "",
        "refimpl/slots/questions.py": "recompute came first: now vDNN's slots do; who asks: the executor, too",
        "refimpl/vdnn/offload.py": "`with_new` comes an hour later: a sentence says what it does",
        "refimpl/vdnn/presets.py": "",
        "refimpl/slots/last_consumer.py": "",
        "refimpl/slots/window.py": "",
        "refimpl/slots/context.py": "three cached functions came before the class: now after it",
        "refimpl/slots/baseline.py": "algorithms and what does nothing came first; `Buffers`: now `PinnedPlaces`",
        "refimpl/slots/setup.py": "modules as text: now a file; `KINDS`, elsewhere of layers: now `BASES`",
        "refimpl/memory/base.py": "cnmem: a comment says whose",
        "refimpl/memory/fits.py": "was not on the path, and is vDNN's pool",
        "kernels/relu.py": "",
        "kernels/conv.py": "`pad[:2]`, and arguments that nothing reads: a comment",
        "kernels/index.py": "was not on the path, and conv needs it",
        "kernels/run.py": "",
        "kernels/copies.py": "",
        "refimpl/network/small.py": "conventions: a sentence; LeNet is enough: a heading",
    },
    "what a network is": {
        "refimpl/network/tensor.py": "where its values are: the docstring",
        "refimpl/network/call.py": "what a machine's model asks came in the middle: now last",
        "refimpl/network/layer.py": "`Layer` came last: now first, and attributes that no paper needs last",
        "refimpl/network/kinds.py": "`with_new` came after 150 lines of later kinds: now before them",
        "refimpl/network/calls.py": "batch normalisation and clipping came early: now last; inference: in `derived.py`",
    },
    "SuperNeurons": {
        "refimpl/executor.py": "",
        "refimpl/slots/questions.py": "the example of a rebuild named the planner's method: now the executor's",
        "refimpl/superneurons/liveness.py": "",
        "refimpl/superneurons/offload.py": "",
        "refimpl/superneurons/prefetch.py": "",
        "refimpl/superneurons/unified_pool.py": "",
        "refimpl/superneurons/segments.py": "",
        "refimpl/superneurons/recompute.py": "",
        "refimpl/superneurons/cache.py": "the table named methods of the planner: now the executor's",
        "refimpl/superneurons/presets.py": "",
        "refimpl/memory/block_heap.py": "",
    },
    "vDNN++": {
        "refimpl/vdnnpp/prefetch.py": "",
        "refimpl/vdnnpp/offload.py": "",
        "refimpl/vdnnpp/pinned.py": "",
        "refimpl/vdnnpp/presets.py": "`Compressed` and `FoundPool` are another afternoon's",
    },
}
STOPS = re.compile(r" *# -- .*reader.* stops here")  #: the heading at which a file's first reader stops
LINES_A_MINUTE = 22  #: of code that is read for the first time


def reading_path(root: Path) -> str:
    """The path as a table, a row a file: its lines, the minutes that these take, and what stopped a reader."""
    rows = ["| file | lines | minutes | what stopped a reader, and what was mended |", "| --- " * 4 + "|"]
    read: dict[str, int] = {}  # file → its lines that earlier parts have
    total = 0
    for part, places in READING.items():
        listed, before = [], total
        for place, note in places.items():
            lines = (root / place).read_text(encoding="utf-8").splitlines()
            stop = next((number for number, line in enumerate(lines) if STOPS.match(line)), len(lines))
            many = len(lines) - read[place] if place in read else stop
            some = "" if many == len(lines) else " (the rest)" if place in read else f" of {len(lines)}"
            read[place], total = stop, total + many
            listed.append(f"| [{place}](../{place}) | {many}{some} | {max(1, round(many / LINES_A_MINUTE))} | {note} |")
        minutes = round((total - before) / LINES_A_MINUTE)
        rows += [f"| **{part}** | **{total - before:,}** | **{minutes}** | |", *listed]
    minutes = round(total / LINES_A_MINUTE)
    return "\n".join([*rows, f"| **all** | **{total:,}** | **{minutes // 60} h {minutes % 60}** | |", ""])


def measurements_page(folder: Path) -> str:
    """A page that lists what `refimpl bench --write` has kept, the latest first."""
    names = sorted((path.stem for path in folder.glob("*.md")), key=lambda name: name[-10:], reverse=True)
    listed = "\n".join(f"/measurements/{name}" for name in names)
    return f"{MEASUREMENTS}```{{toctree}}\n:maxdepth: 1\n\n{listed}\n```\n" if names else f"{MEASUREMENTS}None yet.\n"


# -- the site's copies -------------------------------------------------------------------------------------------------

DECK = re.compile(r"\[([^]]*)\]\((?:\.\./tutorials/)?decks/(\w+)\.md\)")  #: a page of its own at the site's root
COPIED = r"tutorials/(\w+\.ipynb|README\.md|(?:handouts|guest)/\w+\.md)"  #: what the site has a copy of
ELSEWHERE = re.compile(r"\[([^]]*)\]\(\.\./(tutorials/solutions/\w+\.md|SECURITY\.md)\)")  #: what it has not
CODE = re.compile(r"^\[(?:`(?P<name>[\w.]+)` in )?(?P<path>[\w/.-]+)\]\((?P<link>[^)]+)\)$", re.MULTILINE)


def for_the_site(text: str, page: Path) -> str:
    """A page with the code that it links to on a line of its own, and with what a comment has for the site."""
    text = re.sub(r"<!-- on the site:\s(.*?)\s*-->", r"\1", text, flags=re.DOTALL)
    text = DECK.sub(r'<a href="\2.html">\1</a>', text)
    text = CODE.sub(lambda found: f"{found[0]}\n\n{_shown(page.parent / found['link'], found['name'])}", text)
    text = ELSEWHERE.sub(r"\1 (`\2`)", text)
    return re.sub(rf"\]\((?:\.\./)+{COPIED}([#)])", _copied, text)


def _copied(found: re.Match[str]) -> str:
    """A link to the site's copy of a notebook, of the course or of a handout."""
    return f"](/_generated/tutorials/{found[1]}{found[2]}"


def _shown(path: Path, name: str | None) -> str:
    """A file, or one definition of it, as a block."""
    text = path.read_text(encoding="utf-8").rstrip()
    language = {".py": "python"}.get(path.suffix, path.suffix[1:])
    if name:
        within: ast.AST = ast.parse(text)
        for part in name.split("."):
            within = next(node for node in getattr(within, "body", ()) if part in _defined(node))
        first = min([within.lineno, *(each.lineno for each in getattr(within, "decorator_list", ()))])
        lines = text.split("\n")[first - 1 : within.end_lineno]
        text = "\n".join(line[within.col_offset :] for line in lines)
    return f"```{language}\n{text}\n```"


def _defined(node: ast.AST) -> list[str]:
    """The names that a statement defines."""
    targets = [*getattr(node, "targets", ()), *([node.target] if isinstance(node, ast.AnnAssign) else ())]
    return [getattr(node, "name", ""), *(getattr(target, "id", "") for target in targets)]


def tutorial(text: str, folder: str = "tutorials") -> str:
    """A page of that folder with its links as they are for the site's copy of it, in docs/_generated."""

    def changed(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, found[1]))
        if re.fullmatch(COPIED, path):
            return found[0]
        return f"]({posixpath.relpath(path, f'docs/_generated/{folder}')}"

    text = DECK.sub(rf'<a href="{posixpath.relpath(".", f"_generated/{folder}")}/\2.html">\1</a>', text)
    return re.sub(r"\]\(((?:\.\./|\w+/)[^)#\s]*)(?=[#)])", changed, text)


def kernels_page() -> str:
    return KERNELS + markdown_table(*listing.table(list(listing.rows()))) + "\n"
