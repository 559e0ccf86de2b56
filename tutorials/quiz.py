"""The quiz with marks: papers whose networks, batches and budgets are drawn from a seed, their answers, and the marks.

    python -m tutorials.quiz --students names.txt --out DIR    a paper for each name, and answers.json, which you keep
    python -m tutorials.quiz --out DIR                         one paper for everybody
    python -m tutorials.quiz --out DIR --mark FOLDER           DIR/marks.csv, from the papers that are filled in

A paper has predictions, whose right choice the planner computes, and questions of `questions.json`.  Seed and name give
its answers: without `--seed` the seed is drawn, and answers.json has it.
"""

from __future__ import annotations

import csv
import json
import random
import re
import secrets
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import refimpl
from refimpl.cli.parser import Parser, error_line
from refimpl.network import Network
from refimpl.text import RefimplError, contents, duration, opened, size
from tutorials.labs.classroom import printable

OPEN: list[dict[str, Any]] = json.loads(Path(__file__).with_name("questions.json").read_text(encoding="utf-8"))
PREDICTED, KNOWN = 12, 8  #: questions of a paper: predictions, and those of `OPEN`
EVERYBODY = "everybody"  #: whose paper it is where there are no names
HEADING = "# Quiz: "  #: of a paper, before the name
TOP = """\
Write one letter after each `Answer`. A prediction is of a plan for a Titan X, as in the notebooks. `refimpl summary
NETWORK` shows the layers of a network.
"""
ANSWER = re.compile(r"(?im)^[^\w\n]{0,9}answer (\d{1,3})[^\w\n]{0,9}:(.*)$")

MIB = 1 << 20
ROOMY = "64GiB"
TRIES = 1000  #: of what is drawn for a prediction
GAP = 1.04  #: the largest figure is at least this many times the next one
#: How fast the link is → machine.
MACHINES = {"": refimpl.machines.titan_x, "half": refimpl.machines.like("titan-x", link="6.4GB/s")}
WORDS = ("falls", "stays the same", "rises")
#: Network → the batches that are drawn.
BATCHES = {
    "alexnet": (64, 96, 128, 192, 256), "overfeat": (32, 64, 96), "vgg11": (16, 32, 48, 64), "vgg16": (16, 32, 48, 64),
    "vgg19": (16, 24, 32, 48), "googlenet": (16, 32, 48, 64), "resnet50": (8, 16, 24, 32),
}  # fmt: skip
POLICIES = ("vdnn-all", "vdnn-conv", "vdnn-dyn", "superneurons-recompute", "superneurons", "superneurons-offload")
CANDIDATES = ("none (p)", "conv (p)", "all (p)", "conv (greedy)", "all (greedy)", "all (m)")  #: of vdnn-dyn
FATES = {"keep": "stays on the device", "offload": "is offloaded", "drop": "is dropped and recomputed"}
AHEAD = "prefetch=superneurons-ahead"
#: Policies of which two are compared in a question.
COMPARED = (
    ("baseline", "baseline, liveness=layer-wise"),
    ("vdnn-all", "vdnn-all, join=no"),
    ("vdnn-all", "vdnn-all, prefetch=none"),
    ("vdnn-all", "vdnn-all, algorithms=performance"),
    ("vdnn-conv", "vdnn-all", "superneurons-liveness"),
    (f"vdnn-all, {AHEAD}:3", f"vdnn-all, {AHEAD}:20"),
    (f"vdnn-all, join=no, {AHEAD}:3", f"vdnn-all, join=no, {AHEAD}:20"),
    ("superneurons-liveness", "superneurons-recompute"),
)


class Figures(NamedTuple):
    """What is asked of a plan."""

    peak: int  #: bytes
    seconds: float
    fates: dict[str, str]  #: by map
    adopted: str  #: the candidate of a policy that tries several


@dataclass(frozen=True)
class Question:
    question: str
    right: str
    wrong: list[str]
    because: str


@cache
def network_of(name: str, batch: int) -> Network:
    built: Network = refimpl.networks.build(name, batch)
    return built


@cache
def planned(network: str, batch: int, policy: str, budget: str = ROOMY, link: str = "") -> Figures | None:
    """The figures of a plan for a Titan X, perhaps with another link; None where it does not fit."""
    try:
        program = refimpl.plan(network_of(network, batch), policy, MACHINES[link], budget)
    except refimpl.DoesNotFit:
        return None
    fates = {tensor.name: fate.name for tensor, fate in program.fates.items()}
    adopted = program.adopted.setup if program.adopted else ""
    return Figures(program.peak_bytes, program.planned_seconds, fates, adopted)


@cache
def least(network: str, batch: int, policy: str) -> int:
    """The least budget, in bytes."""
    found: int = refimpl.least_budget(network_of(network, batch), policy, machine=MACHINES[""])
    return found


def word(before: float, after: float) -> str:
    """What becomes of a figure; empty where it changes too little to ask for it."""
    change = after / before - 1
    return WORDS[1] if abs(change) < 0.003 else "" if abs(change) < 0.02 else WORDS[2 * (change > 0)]


# -- predictions: a question, or None where what was drawn gives none --------------------------------------------------


def drawn(draw: random.Random) -> tuple[str, int, str]:
    """A network, its batch, and both as text."""
    network = draw.choice([*BATCHES])
    batch = draw.choice(BATCHES[network])
    return network, batch, f"{network} with {batch} images"


def compared(policies: tuple[str, ...], draw: random.Random) -> Question | None:
    network, batch, text = drawn(draw)
    one, other = draw.sample(policies, 2)
    before, after = planned(network, batch, one), planned(network, batch, other)
    assert before and after
    found = word(before.peak, after.peak), word(before.seconds, after.seconds)
    if not all(found):
        return None
    outcomes = {(peak, time): f"the peak {peak}, the time {time}" for peak in WORDS for time in WORDS}
    right = outcomes.pop(found)
    return Question(
        f"There is memory enough for {text}. What becomes of its peak, and of the time of an iteration, if you write "
        f"`{other}` in place of `{one}`?",
        right,
        draw.sample([*outcomes.values()], 2),
        f"The peak is {size(before.peak)}, then {size(after.peak)}; the time {duration(before.seconds)}, then "
        f"{duration(after.seconds)}.",
    )


def most(question: str, figures: dict[str, float], shown: Callable[[Any], str]) -> Question | None:
    """A question for the name with the largest figure."""
    right, *wrong = sorted(figures, key=figures.__getitem__, reverse=True)
    if figures[right] < GAP * figures[wrong[0]]:
        return None
    because = ", ".join(f"{name}: {shown(value)}" for name, value in figures.items())
    return Question(question, right, wrong, f"{because}.")


def growth(
    question: str, network: str, batch: int, policies: list[str], before: tuple[str, str], after: tuple[str, str]
) -> Question | None:
    """A question for the policy whose time grows most from one budget and link to others."""
    figures = {}
    for policy in policies:
        one, other = (planned(network, batch, policy, *given) for given in (before, after))
        if not one or not other:
            return None
        figures[policy] = other.seconds / one.seconds
    question = f"{question} Under which policy does the time of an iteration grow by the largest factor?"
    return most(question, figures, "{:.2f} times".format)


def largest_least_budget(draw: random.Random) -> Question | None:
    network, batch, text = drawn(draw)
    figures: dict[str, float] = {policy: least(network, batch, policy) for policy in draw.sample(POLICIES, 3)}
    return most(f"Which policy needs the largest budget to train {text} at all?", figures, size)


def smaller_budget(draw: random.Random) -> Question | None:
    network, batch, text = drawn(draw)
    policies = draw.sample(POLICIES, 3)
    low = draw.choice((1.02, 1.1, 1.2)) * max(least(network, batch, policy) for policy in policies)
    before, after = (f"{nbytes / MIB:.0f} MiB" for nbytes in (1.1 * least(network, batch, "baseline"), low))
    question = f"The budget of {text} falls from {before} to {after}, in which all three policies fit."
    return growth(question, network, batch, policies, (before, ""), (after, ""))


def slower_link(draw: random.Random) -> Question | None:
    network, batch, text = drawn(draw)
    policies = draw.sample(("baseline", "vdnn-conv, algorithms=performance", *POLICIES), 3)
    question = f"There is memory enough for {text}, and the link to the host becomes half as fast."
    return growth(question, network, batch, policies, (ROOMY, ""), (ROOMY, "half"))


def fate(draw: random.Random) -> Question | None:
    network, batch, text = drawn(draw)
    policy = draw.choice(("vdnn-all", "vdnn-conv", "superneurons-recompute", "superneurons-offload"))
    found = planned(network, batch, policy)
    assert found
    fates = {name: fate for name, fate in found.fates.items() if name != "softmax"}
    asked = draw.choice(sorted({*fates.values()}))
    right, wrong = ([name for name in fates if (fates[name] == asked) is same] for same in (True, False))
    if len(wrong) < 2:
        return None
    three = [draw.choice(right), *draw.sample(wrong, 2)]
    because = ", ".join(f"{name}: {fates[name]}" for name in three)
    return Question(f"Which map of {text} {FATES[asked]} under `{policy}`?", three[0], three[1:], f"{because}.")


def adopted(draw: random.Random) -> Question | None:
    network, batch, text = drawn(draw)
    low, high = least(network, batch, "vdnn-dyn"), least(network, batch, "baseline")
    budget = f"{(low + draw.choice((0.1, 0.3, 0.5, 0.7, 0.9, 1.1)) * (high - low)) / MIB:.0f} MiB"
    found = planned(network, batch, "vdnn-dyn", budget)
    return found and Question(
        f"The budget of {text} is {budget}; the least are {size(high)} under `baseline` and {size(low)} under "
        "`vdnn-dyn`. Which candidate does `vdnn-dyn` adopt? (p: fastest algorithms, m: least workspace)",
        found.adopted,
        draw.sample([one for one in CANDIDATES if one != found.adopted], 2),
        f"The first that fits, of {', '.join(CANDIDATES)}.",
    )


KINDS: tuple[Callable[[random.Random], Question | None], ...] = (
    *(partial(compared, policies) for policies in COMPARED),
    largest_least_budget, smaller_budget, slower_link, fate, adopted,
)  # fmt: skip


# -- papers ------------------------------------------------------------------------------------------------------------


def prediction(kind: Callable[[random.Random], Question | None], draw: random.Random) -> Question:
    return next(filter(None, (kind(draw) for _ in range(TRIES))))


def known(one: dict[str, Any]) -> Question:
    wrong = [text for letter, text in one["choices"].items() if letter != one["answer"]]
    return Question(one["question"], one["choices"][one["answer"]], wrong, one["because"])


def paper(seed: str, student: str) -> tuple[str, list[dict[str, str]]]:
    """A paper as Markdown, and its answers."""
    draw = random.Random(f"{seed} {student}")
    asked = [prediction(kind, draw) for kind in draw.sample(KINDS, PREDICTED)]
    asked += [known(one) for one in draw.sample(OPEN, KNOWN)]
    draw.shuffle(asked)
    text, answers = f"{HEADING}{student}\n\n{TOP}\n", []
    for number, one in enumerate(asked, 1):
        choices = dict(zip("abc", draw.sample([one.right, *one.wrong], 3), strict=True))
        answer = next(letter for letter, choice in choices.items() if choice == one.right)
        lines = "\n".join(f"- **{letter}** {choice}" for letter, choice in choices.items())
        text += f"\n**{number}.** {one.question}\n\n{lines}\n\nAnswer {number}:\n"
        answers.append({"answer": answer, "question": one.question, "right": one.right, "because": one.because})
    return text, answers


def write(students: list[str], seed: str, out: Path) -> None:
    """Write a paper for each student, and the answers of all."""
    files = [re.sub(r"[^\w-]+", "-", student) + ".md" for student in students]
    if twice := [name for name in files if files.count(name) > 1]:
        raise RefimplError(f"two students would have the paper {twice[0]}; write one of the names in another way")
    kept, papers = out / "answers.json", out / "papers"
    if kept.exists():
        raise RefimplError(f"{kept} has the answers of other papers; give another folder")
    papers.mkdir(parents=True, exist_ok=True)
    answers = {}
    for student, name in zip(students, files, strict=True):
        text, answers[student] = paper(seed, student)
        (papers / name).write_text(text, encoding="utf-8")
    made = {"seed": seed, "papers": answers}
    kept.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def names_in(path: Path) -> list[str]:
    try:
        names = [name.strip("\ufeff \t") for name in contents(path).splitlines() if name.strip("\ufeff \t")]
    except UnicodeDecodeError:
        names = []
    if not names:
        raise RefimplError(f"{path} has no names; write one a line, in UTF-8")
    return names


# -- marks -------------------------------------------------------------------------------------------------------------

Row = tuple[str, int | str, int | str, str, str]  #: student, points, questions, numbers of wrong ones, remark


def marked(path: Path, papers: dict[str, list[dict[str, str]]]) -> Row:
    """The row of a paper that is filled in."""
    try:
        with opened(path, most=MIB) as file:
            text = file.read().decode("utf-8-sig", errors="replace")
    except OSError as error:
        return path.stem, "", "", "", error_line(error)
    owner = text.partition("\n")[0].removeprefix(HEADING).strip()
    if owner not in papers:
        return path.stem, "", "", "", f"{path.name}: its first line is not that of a paper"
    given: dict[int, str] = {}
    for number, letter in re.findall(ANSWER, text):
        if letter := letter.strip(" \t\r*_`.()").lower():
            given[int(number)] = letter if given.get(int(number), letter) == letter else "two letters"
    wrong = [number for number, one in enumerate(papers[owner], 1) if given.get(number) != one["answer"]]
    unread = [str(number) for number in wrong if given.get(number, "") not in ("a", "b", "c")]
    student = path.stem if owner == EVERYBODY else owner
    remark = f"no letter at {' '.join(unread)}" if unread else ""
    return student, len(papers[owner]) - len(wrong), len(papers[owner]), " ".join(map(str, wrong)), remark


def mark(folder: Path, out: Path) -> None:
    """Write a row for each paper of a folder, and for each student without one."""
    kept = out / "answers.json"
    try:
        papers = dict(json.loads(contents(kept))["papers"])
    except (ValueError, KeyError, TypeError):
        raise RefimplError(f"{kept} is not a file of answers that this command wrote") from None
    rows = [marked(path, papers) for path in sorted(folder.glob("*.md"))]
    if not rows:
        raise RefimplError(f"{folder} has no paper; their names end in .md")
    missing = sorted(papers.keys() - {row[0] for row in rows} - {EVERYBODY})
    rows += [(student, 0, len(papers[student]), "", "no paper") for student in missing]
    with (out / "marks.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(("student", "points", "of", "wrong", "remark"))
        table.writerows((printable(student), *of, printable(remark)) for student, *of, remark in rows)


def main(*words: str) -> None:
    parser = Parser("quiz", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where all files are written")
    parser.add_argument("--students", type=Path, metavar="FILE", help="names, one a line")
    parser.add_argument("--seed", default=secrets.token_hex(8), help="any text, which you keep (default: a drawn one)")
    parser.add_argument("--mark", type=Path, metavar="FOLDER", help="of papers that are filled in")
    given = parser.parse_args(words)
    if given.mark:
        mark(given.mark, given.out)
    else:
        write(names_in(given.students) if given.students else [EVERYBODY], given.seed, given.out)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (RefimplError, OSError) as error:
        sys.exit(f"quiz: {error_line(error)}")
