"""No file that the command reads ends in a traceback, and no damaged checkpoint loads other weights.

The campaigns take minutes (`pytest -m campaign`); a small sample of each is in the normal suite.
"""

from __future__ import annotations

import io
import json
import os
import re
import signal
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from functools import partial
from math import isfinite
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import refimpl
from refimpl.accudnn.tuner import warmed_up
from refimpl.backend import checkpoint, data
from refimpl.backend.data import load_npz
from refimpl.cli import main, status_of
from refimpl.cli.tuned_file import TunedFile, tuned_file
from refimpl.combined import load as load_fates
from refimpl.machine import cpu_costs
from refimpl.machine.devices import Cpu
from refimpl.machine.measure import measure
from refimpl.machine.measured_profile import load as load_profile
from refimpl.names.networks import build
from refimpl.network import Builder, Network
from refimpl.network.initial_state import state_tensors
from refimpl.report.allocation_log import read_rmm
from refimpl.report.tables import Table
from refimpl.studies.challenge import command as challenge
from refimpl.studies.challenge.point_set import BestKnown, ChallengePoint
from refimpl.studies.grid import command as grid
from refimpl.studies.transformers import command as transformers
from refimpl.studies.transformers.outcomes import questions
from tests.messages import lacks
from tests.refimpl.damage import archive, damaged_bytes, damaged_csv, damaged_json, members, npy
from tests.refimpl.importing.onnx_files import small

SAMPLE, CAMPAIGN = 10, 2000
LOG = Path(__file__).parents[1] / "data" / "rmm_small_cnn.csv"

amounts = pytest.mark.parametrize("count", [SAMPLE, pytest.param(CAMPAIGN, marks=pytest.mark.campaign)])


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    """A warning would be a second line on standard error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def damaged_text(text: str, random: Random, change: Callable[[str, Random], str]) -> bytes:
    """A text with damaged bytes, or with changes that its format allows."""
    if random.random() < 0.5:
        return damaged_bytes(text.encode(), random)
    return change(text, random).encode(errors="surrogateescape")


def refusal(read: Callable[[], Any]) -> str | None:
    """The one line that a file is refused with, or None.  Any error that would be a traceback is raised."""
    try:
        read()
    except Exception as error:
        if status_of(error) != 2:
            raise
        assert "\n" not in str(error) and str(error).isprintable() and len(str(error)) < 600
        return str(error)
    return None


def command(*arguments: Any) -> Counter[int]:
    """The exit status of a command, which says one line if it fails and strict JSON if it does not."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main([*map(str, arguments), "--json"])
    if status in (0, 3) and out.getvalue():
        json.loads(out.getvalue(), parse_constant=lambda name: pytest.fail(f"the document has {name}"))
    else:
        assert status in (2, 3) and err.getvalue().count("\n") == 1, err.getvalue()
    return Counter([status])


# -- checkpoints -------------------------------------------------------------------------------------------------------


def tiny() -> Network:
    b = Builder("tiny", (2, 1, 4, 4))
    b.conv(2, 3, pad=1, name="conv")
    b.batchnorm(name="normal")
    b.relu()
    b.fc(64, name="hidden")  # 8 KiB: zipfile reads 4 KiB at once, and then knows the checksum of a smaller member
    b.fc(3, name="last")
    b.softmax()
    return b.build()


SETTINGS: dict[str, float | str] = {
    "seed": 7, "iteration": 12, "rate": 0.125, "momentum": 0.9, "decay": 0.0, "schedule": "constant", "warmup": 0,
}  # fmt: skip
ALGORITHMS = {call.name: "direct" for step in tiny().steps for call in step.calls if call.choosable}


class Saved:
    """A checkpoint, and what reading a damaged one comes to: a refusal, or the same weights."""

    def __init__(self, path: Path) -> None:
        self.path, self.network = path, tiny()
        random = np.random.default_rng(0)
        tensors = state_tensors(self.network)
        self.state = {tensor.name: random.normal(size=tensor.shape).astype(np.float32) for tensor in tensors}
        checkpoint.write(path, self.network, self.state, SETTINGS, ALGORITHMS)
        self.content = path.read_bytes()

    def outcome(self, content: bytes) -> str:
        self.path.write_bytes(content)
        found: list[Any] = []
        if refusal(lambda: found.extend(checkpoint.read(self.path, self.network))):
            return "refused"
        state, settings = found
        assert settings.keys() == SETTINGS.keys() and state.keys() == self.state.keys()
        assert all(isfinite(value) for value in settings.values() if isinstance(value, float))
        assert all(state[name].tobytes() == self.state[name].tobytes() for name in state)
        return "the same"


@pytest.fixture
def saved(tmp_path: Path) -> Saved:
    return Saved(tmp_path / "saved.npz")


def test_a_checkpoint_is_read_as_it_was_written(saved: Saved) -> None:
    assert saved.outcome(saved.content) == "the same"


def test_every_flipped_bit_in_a_header_is_refused(saved: Saved) -> None:
    """All of `\\x93NUMPY`, the version and the length.  One flipped bit of the length once loaded other weights."""
    start = saved.content.index(b"\x93NUMPY", saved.content.index(b"hidden.w.npy"))
    for at in range(start, start + 10):
        for bit in range(8):
            content = bytearray(saved.content)
            content[at] ^= 1 << bit
            assert saved.outcome(bytes(content)) == "refused"


def damaged_archive(whole: bytes, random: Random) -> bytes:
    """One whose own checksums are right, with a member that is damaged, gone, twice there, or another's."""
    held = [*members(whole).items()]
    place = random.randrange(len(held))
    name, content = held[place]
    match random.randrange(8):
        case 0:
            del held[place]
        case 1:
            held.append((name if random.random() < 0.5 else name.removesuffix(".npy"), content))
        case 2:
            held[place] = name, random.choice(held)[1]
        case 3:
            held[place] = random.choice(("unknown.npy", "\x1b[2J.npy", "../../conv.w.npy")), content
        case 4 if name == "about.npy":
            about = str(np.load(io.BytesIO(content)))
            held[place] = name, npy(damaged_json(about, random).encode("utf-8", "replace").decode())
        case 5:
            header = {"shape": random.choice(((2**40, 2**20), (-2, 9), (18,), (), (True, 18), "x", (1.5,)))}
            held[place] = name, npy(np.ones(18, np.float32), **header)
        case 6:
            held[place] = name, npy(np.ones((2, 1, 3, 3), random.choice(("<f4", "<f8", ">f4", "<i4"))))
        case _:
            held[place] = name, damaged_bytes(content, random)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a name that is there twice
        return archive(held, random.choice((zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_BZIP2)))


def one_flipped_bit(whole: bytes, random: Random) -> bytes:
    content = bytearray(whole)
    content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    return bytes(content)


@pytest.mark.parametrize("damage", [one_flipped_bit, damaged_archive, damaged_bytes])
@amounts
def test_damaged_checkpoints_load_no_other_weights(
    saved: Saved, damage: Callable[[bytes, Random], bytes], count: int
) -> None:
    outcomes = Counter(saved.outcome(damage(saved.content, Random(seed))) for seed in range(count))
    assert outcomes["refused"] > count / 2


def test_a_zip_bomb_is_refused_before_it_is_unpacked(saved: Saved, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint or data, by what the archive's own directory says."""
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as made, made.open("images.npy", "w") as member:
        for _ in range(64):
            member.write(bytes(1 << 20))
    saved.path.write_bytes(bomb.getvalue())
    assert len(bomb.getvalue()) < 1 << 17
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *_: pytest.fail("it is unpacked"))
    monkeypatch.setattr(data, "memory_bytes", lambda: 63 << 20)
    for read in (checkpoint.read, checkpoint.algorithms):
        said = refusal(lambda read=read: read(saved.path, saved.network)) or ""  # type: ignore[misc]
        assert lacks(said, saved.path, "64 MiB", "tiny") == []
    assert lacks(refusal(lambda: load_npz(saved.path)) or "", saved.path, "64 MiB", "63 MiB") == []


# -- data --------------------------------------------------------------------------------------------------------------


@amounts
def test_damaged_data_is_read_or_refused(tmp_path: Path, count: int) -> None:
    path, random = tmp_path / "data.npz", np.random.default_rng(0)
    images, labels = random.normal(size=(10, 1, 3, 3)).astype(np.float32), np.arange(10) % 3
    contents = []
    for save in (np.savez, np.savez_compressed):
        save(path, images=images, labels=labels, classes=4)
        contents.append(path.read_bytes())
    outcomes: Counter[bool] = Counter()
    for seed in range(count):
        drawn = Random(seed)
        content = drawn.choice(contents)
        if drawn.random() < 0.5:
            content = damaged_bytes(content, drawn)
        else:  # a whole archive of damaged arrays
            held = members(content)
            name = drawn.choice([*held])
            held[name] = damaged_bytes(held[name], drawn)
            content = archive([*held.items()])
        path.write_bytes(content)
        outcomes[refusal(lambda: load_npz(path)) is None] += 1
    assert outcomes[False] > count / 2


# -- profiles, logs, fates ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("profile") / "profile.json"
    measure(build("lenet", 4), Cpu(), turns=1, limit_seconds=0.05).save(path)
    return path.read_text(encoding="utf-8")


ON_LENET = "plan lenet --batch 4 --machine"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["profile.json", "log.csv", "fates"])
@amounts
def test_a_command_reads_a_damaged_file_or_refuses_it(profile: str, tmp_path: Path, kind: str, count: int) -> None:
    path, statuses = tmp_path / kind, Counter[int]()
    with redirect_stdout(io.StringIO()):
        assert main(f"{ON_LENET} titan-x --policy superneurons --save-fates {tmp_path}/whole".split()) == 0
    text, change, line = {
        "profile.json": (profile, damaged_json, f"{ON_LENET} {path} --policy vdnn-all"),
        "log.csv": ("\n".join(LOG.read_text().splitlines()[:40]), damaged_csv, f"study fragmentation {path}"),
        "fates": ((tmp_path / "whole").read_text(), damaged_csv, f"{ON_LENET} titan-x --set fates={path}"),
    }[kind]
    for seed in range(count):
        path.write_bytes(damaged_text(text, Random(seed), change))
        statuses += command(*line.split())
    assert statuses[2] > count / 4


# -- points of curves, a tuned batch, this machine's costs -------------------------------------------------------------


#: A study → its words, and how many of its first damaged files are tried in the suite.
STUDIES = {
    "file": "rows.jsonl",
    "points": "grid.toml --out rows.jsonl",
    "network": "lenet --batch 2 --machine titan-x --with vdnn-all --points 2 --effort 1 --out rows.jsonl",
    "transformers": "transformers --network lenet --machine titan-x --effort 1 --picture drawn.svg --out rows.jsonl",
    "challenge": "challenge vdnn-all baseline --out rows.jsonl",
}
GRID = """
networks = ["lenet"]
setups = ["baseline", "vdnn-all", "bound 5", "no-such"]
budgets = ["", "60%", "1KiB", "least"]
batches = [2]
[[points]]
network = "lenet"
setup = "vdnn-all"
machine = "titan-x"
budget = "8MiB"
batch = "largest"
"""


@pytest.mark.slow
@pytest.mark.parametrize("study", STUDIES)
@amounts
def test_damaged_files_of_rows_are_read_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, study: str, count: int
) -> None:
    """By the table, by every picture, and by every study that goes on from its file; a refusal says where."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(transformers, "NETWORKS", {"lenet": 2})
    some = partial(questions, shares=(0.2, 0.7), policies=("everything kept", "vdnn-all"))
    monkeypatch.setattr(transformers, "questions", some)
    monkeypatch.setattr(transformers, "block_table", lambda network: Table("", ["map"], []))  # lenet has no blocks
    point = ChallengePoint("lenet", 2, "titan-x", 8 << 20, None, BestKnown(1e6, "slow", "0"))
    monkeypatch.setattr(challenge, "printed", lambda: [point])
    monkeypatch.setattr(challenge, "drawn", lambda seed: [point._replace(best=None, budget=9 << 20)])
    Path("grid.toml").write_text(GRID)
    path, outcomes = Path("rows.jsonl"), Counter[int]()
    of = {"file": "points"}.get(study, study)
    with redirect_stdout(io.StringIO()):
        assert main(["study", *STUDIES[of].split(), "--jobs", "1"]) == 0
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for seed in range(count):
        random = Random(seed)
        path.write_bytes(damaged_lines(lines, random))
        words = ["study", *STUDIES[study].split()]
        if study == "file":
            more = [f"--draw {kind} --picture drawn.svg" for kind in grid.KINDS]
            words += random.choice(["", "--csv", "--json", *more]).split()
        else:
            words += ["--jobs", "1"]
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            status = main(words)
        outcomes[status] += 1
        assert status in (0, 2) and err.getvalue().count("\n") == (status == 2), (words, err.getvalue())
        assert (out.getvalue() + err.getvalue()).replace("\n", "").isprintable()
        assert status == 0 or re.search(r"rows.jsonl(, line \d+)?|to draw|one network", err.getvalue()), err.getvalue()
    assert outcomes[2] > count / 10


def damaged_lines(lines: list[Any], random: Random) -> bytes:
    """A file with a JSON text a line, damaged as bytes or within one of them."""
    texts = [json.dumps(line) for line in lines]
    if random.random() < 0.5:
        place = random.randrange(len(texts))
        texts[place] = damaged_json(texts[place], random)
    content = "".join(f"{text}\n" for text in texts).encode(errors="surrogateescape")
    return content if random.random() < 0.5 else damaged_bytes(content, random)


@amounts
def test_a_damaged_tuned_batch_is_taken_or_refused(tmp_path: Path, count: int) -> None:
    learning = {"rate": 0.1, "base_rate": 0.01, "warmup_epochs": 5}
    whole = {"network": "lenet", "optimal_batch": 8, "learning": learning}
    path, outcomes = tmp_path / "tuned.json", Counter[bool]()
    for name in learning:
        path.write_text(json.dumps(whole | {"learning": learning | {name: 10**400}}))
        assert refusal(lambda: tuned_file(str(path)))
    for seed in range(count):
        path.write_bytes(damaged_lines([whole], Random(seed)))
        tuned: list[TunedFile] = []

        def read(into: list[TunedFile] = tuned) -> None:
            into.append(tuned_file(str(path)))

        refused = refusal(read)
        outcomes[refused is None] += 1
        for one in tuned:
            assert isfinite(warmed_up(one.rate, one.base_rate, one.warmup_epochs, 1))
    assert outcomes[False] > count / 4


@amounts
def test_damaged_costs_of_this_machine_are_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    path, outcomes = tmp_path / "here.json", Counter[bool]()
    monkeypatch.setattr(cpu_costs, "costs_path", lambda: path)
    text = cpu_costs.REFERENCE.read_text(encoding="utf-8")
    for seed in range(count):
        path.write_bytes(damaged_lines([json.loads(text)], Random(seed)))
        costs = cpu_costs.read_costs()
        outcomes[costs is None] += 1
        assert costs is None or all(0 <= cost < 1 for each in costs.values() for cost in each)
    assert outcomes[True] > count / 4


def from_onnx(path: str) -> Any:
    return refimpl.networks.from_onnx(path)


READERS = [tuned_file, load_fates, load_profile, read_rmm, load_npz, lambda path: checkpoint.read(path, tiny())]


@pytest.mark.parametrize("read", [*READERS, from_onnx, lambda path: build(f"{path}.py:make")])
@pytest.mark.parametrize("kind", ["device", "link to a device", "pipe", "link to a pipe", "folder"])
def test_what_is_no_file_is_refused_at_once(read: Callable[[str], Any], kind: str, tmp_path: Path) -> None:
    """A device has no end, and a pipe that is not written never begins."""
    path = tmp_path / "named"
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    place = "/dev/zero" if "device" in kind else str(tmp_path / ("pipe" if "pipe" in kind else "folder"))
    path.symlink_to(place)
    (tmp_path / "named.py").symlink_to(place)
    signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it waits"))
    signal.alarm(20)
    try:
        for given in {str(path), str(path) if "link" in kind else place}:
            said = refusal(lambda given=given: read(given)) or ""  # type: ignore[misc]
            assert given in said and ("pipe" in said or "folder" in said or "there is no" in said), said
    finally:
        signal.alarm(0)


@pytest.mark.parametrize("read", [tuned_file, load_fates, load_profile])
def test_a_text_of_many_gigabytes_is_not_read(read: Callable[[str], Any], tmp_path: Path) -> None:
    with open(tmp_path / "large", "wb") as file:
        file.truncate(1 << 40)
    assert "it has 1 TiB; at most 256 MiB are read" in (refusal(lambda: read(str(tmp_path / "large"))) or "")


EVIL = "\x1b[2J\x9b31m\x1b]0;title\x07\u202e$x_$\udcff"
OWN = """
from dataclasses import replace
import refimpl
EVIL = {evil!r}
def make(batch):
    b = refimpl.Builder("net" + EVIL, (batch, 1, 8, 8))
    b.conv(2, 3, pad=1, name="conv" + EVIL)
    b.fc(3)
    b.softmax()
    return b.build()
SETUP = replace(refimpl.presets.setup("vdnn-all"), name="-setup" + EVIL)
"""


@pytest.mark.slow
def test_what_a_terminal_obeys_is_printed_escaped(
    profile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name out of any file, of a network, a layer, a setup or a machine: in an error, in a table, in a document, in
    a picture, on a bar."""
    monkeypatch.chdir(tmp_path)
    learning = {"rate": 0.1, "base_rate": 0.01, "warmup_epochs": 5}
    Path("tuned.json").write_text(json.dumps({"network": EVIL, "optimal_batch": 8, "learning": learning}))
    Path("fates").write_text(f"conv1 {EVIL}\n", errors="surrogateescape")
    Path("profile.json").write_text(json.dumps(json.loads(profile) | {"device": EVIL}))
    network, own = Path(f"{EVIL}.onnx".replace("/", "")), Path(f"{EVIL}.py")
    network.write_bytes(small().model("end").SerializeToString())
    own.write_text(OWN.format(evil=EVIL))
    plan, mine = ("plan", "lenet", "--batch", "2", "--machine"), (f"{own}:make", "--batch", "2")
    ours = ("--machine", "titan-x", "--policy", f"{own}:SETUP")
    study = ("study", mine[0], "--batch", "2", "--machine", "titan-x", "--with", f"{own}:SETUP", "--points", "2",
             "--effort", "1", "--jobs", "1")  # fmt: skip
    for line in (
        ("run", "lenet", "--tuned", "tuned.json"),
        (*plan, "titan-x", "--policy", "combined", "--set", "fates=fates"),
        ("plan", "lenet", "--batch", "4", "--machine", "profile.json"),
        ("plan", "lenet", "--batch", "4", "--machine", "profile.json", "--json"),
        ("summary", network),
        ("summary", network, "--json"),
        ("summary", f"{EVIL}"),
        ("plan", "lenet", "--batch", EVIL),
        ("summary", mine[0]),
        ("plan", *mine, *ours, "--steps"),
        *(("plan", *mine, *ours, "--draw", kind, "--picture", f"{kind}.svg") for kind in ("timeline", "memory")),
        ("compare", *mine, *ours[:2], "--with", ours[3]),
        ("export", *mine, *ours),
        ("export", *mine, *ours, "--out", "script.py"),
        (*study, "--out", "rows.jsonl", "--picture", "pareto"),
        ("study", "rows.jsonl"),
        ("study", "rows.jsonl", "--csv"),
        *(("study", "rows.jsonl", "--draw", kind, "--picture", "drawn.svg") for kind in grid.KINDS),
    ):
        out = io.StringIO()
        err: Any = io.StringIO()
        err.isatty = lambda is_study=line[0] == "study": is_study
        with redirect_stdout(out), redirect_stderr(err), suppress(SystemExit):
            main([*map(str, line)])
        written = out.getvalue() + re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", err.getvalue()).replace("\r", "")
        assert written and not [letter for letter in written if not letter.isprintable() and letter != "\n"], line
        assert "Error" not in written and "nothing to draw" not in written, (line, written[-600:])
    compile(Path("script.py").read_text(), "script.py", "exec")
