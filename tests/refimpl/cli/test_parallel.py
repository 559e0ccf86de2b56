"""`refimpl run --parallel mpi`: the first rank speaks and saves; all ranks end together, whatever happens to one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from refimpl.backend import checkpoint
from refimpl.cli import parser
from refimpl.cli.run import take_apart, trained
from refimpl.machine import wire_bytes
from refimpl.parallel.communicators import in_threads
from tests.matrix import more
from tests.refimpl.backend.processes import mpiexec, needs_mpi

RUN = ["run", "lenet", "--data", "digits", "--batch", "4", "--backend", "cpu", "--parallel", "mpi", "--steps", "8"]
TUNED = ["--policy", "superneurons", "--budget", "8MiB", "--network", "bucket=64KiB"]
FAULTY = ["-m", "tests.refimpl.cli.faulty_rank"]


def lines(err: str) -> list[str]:
    """What the ranks and their guard wrote, without what mpiexec adds."""
    return [line for line in err.splitlines() if line.startswith(("refimpl", "resume", "Traceback"))]


def refimpl_with(*changes: str) -> list[str]:
    """The command of `RUN`, with each change made: an option to add or to leave out, another command."""
    words = [*RUN]
    for change in changes:
        if change.startswith("-without "):
            place = words.index(change.removeprefix("-without "))
            del words[place : place + 2]
        elif change.isalpha():
            words[0] = change
        else:
            words += change.split()
    return ["-m", "refimpl", *words]


def build_digits() -> Any:
    from refimpl.names.networks import NETWORKS

    return NETWORKS["lenet"].make(batch=4, shape=(1, 8, 8), classes=10)


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("0:SIGKILL@saving", "rank 0 of 2 was killed"),
        more("1:error@2", "rank 1 of 2 gave up: a kernel failed; all ranks end"),
    ],
)
def test_a_rank_that_ends_without_a_word_ends_all_with_one_line(tmp_path: Path, fault: str, says: str) -> None:
    saved, moment = tmp_path / "saved.npz", tmp_path / "moment"
    np.savez(saved, whole=np.arange(5))
    done = mpiexec([*FAULTY, f"{fault}={moment}", *RUN, "--save", str(saved)])
    (said,) = lines(done.stderr)
    assert moment.exists() and done.returncode == 9 and "iterations" not in done.stdout and says in said
    with np.load(saved) as file:
        assert file["whole"].tolist() == [0, 1, 2, 3, 4]


#: What is planted in a rank; what rank 1 alone is given; the status of all; the line; iterations in the checkpoint.
CASES: dict[str, tuple[str, list[str], int, str, int | None]] = {
    "too small a budget": ("", ["--budget", "100KiB"], 3, "rank 1: does not fit in 100 KiB", None),
    "SIGTERM on rank 1 while it compiles": ("1:SIGTERM@compiling", [], 130, "rank 1: interrupted", None),
    "NaN": ("1:NaN@2", [], 2, "rank 1: iteration 2: the loss is not a number; the first layer that shows it is c", 2),
}  # fmt: skip


@pytest.fixture(scope="module")
def endings(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, list[dict[str, Any]]], Path]:
    """Case → what each of two processes ended with; and the folder of their files.

    The same processes run all cases, since starting them is slow.
    """
    folder, listed = tmp_path_factory.mktemp("endings"), []
    tuned, last = [*RUN, *TUNED, "--save", str(folder / "tuned.npz")], f"1:SIGINT@5={folder / 'interrupted'}"
    for number, (fault, other, *_) in enumerate(CASES.values()):
        first = [*RUN, "--save", str(folder / f"{number}.npz")]
        second = [*first, *other]
        planted = f"{fault}={folder / str(number)}" if fault else ""
        listed.append({"fault": planted, "commands": [first, second]})
    listed.append({"fault": last, "commands": [tuned, tuned]})
    again = [*tuned, "--resume", str(folder / "tuned.npz"), "--json", "--page", str(folder / "page.html")]
    listed.append({"fault": "", "commands": [again, again]})
    (folder / "cases.json").write_text(json.dumps(listed))
    done = mpiexec([*FAULTY, str(folder / "cases.json")])
    assert done.returncode == 0, done.stderr
    ranks = [json.loads((folder / f"cases.{rank}").read_text()) for rank in range(2)]
    named = [*map(str, range(len(CASES))), "interrupted", "tuned"]
    for name, endings in zip(named, zip(*ranks, strict=True), strict=True):
        moment, saved = folder / name, folder / f"{name}.npz"
        for one in endings:
            one["struck"] = moment.exists()
            one["saved"] = checkpoint.read(saved, build_digits())[1]["iteration"] if saved.exists() else None
    return dict(zip([*CASES, "interrupted", "resumed"], map(list, zip(*ranks, strict=True)), strict=True)), folder


@needs_mpi
@pytest.mark.slow
def test_a_fault_of_one_rank_ends_all_with_one_line(endings: Any) -> None:
    for case, (fault, _, status, says, saved) in CASES.items():
        first, second = endings[0][case]
        ended = first["status"], second["status"], first["out"], second["out"]
        assert ended == (status, status, "", ""), case
        said = [line for line in first["err"].splitlines() if not line.startswith("resume with")]
        assert len(said) == 1 and fnmatchcase(said[0], f"refimpl run: {says}*") and second["err"] == "", case
        assert (first["struck"], first["saved"]) == (bool(fault), saved), case


@needs_mpi
@pytest.mark.slow
def test_ranks_that_are_interrupted_and_go_on_end_where_threads_end(endings: Any, tmp_path: Path) -> None:
    cases, folder = endings
    saved, twin = folder / "tuned.npz", tmp_path / "twin.npz"
    first, second = cases["interrupted"]
    assert (first["status"], second["status"], first["out"]) == (130, 130, "") and first["struck"]
    said, how = first["err"].splitlines()
    assert said == f"refimpl run: interrupted (rank 1) after iteration 7; saved: {saved}"
    assert how.startswith("resume with: mpiexec -n 2 refimpl run lenet") and how.endswith(f"--resume {saved}")
    first, second = cases["resumed"]
    assert (first["status"], second["status"], first["err"], second["out"]) == (0, 0, "", "")
    document = json.loads(first["out"])
    assert (document["ranks"], document["first_iteration"], document["iterations"]) == (2, 7, 8)
    assert document["wire_bytes"] == wire_bytes(4 * build_digits().parameter_count, 2)
    assert (folder / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")

    options = parser().parse_args([*RUN, *TUNED, "--save", str(twin), "--json"])
    take_apart(options)
    assert in_threads(2, lambda communicator: trained(options, communicator)) == [0, 0]
    with np.load(saved) as one, np.load(twin) as other:
        assert set(one.files) == set(other.files)
        assert [name for name in one.files if name != "about" and not np.array_equal(one[name], other[name])] == []


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        ((), ("--stepz 3",), "refimpl run: rank 1: '--stepz' is not understood here; did you mean --steps?"),
        more((), ("-without --parallel",), "refimpl run: rank 1: mpiexec has started 2 of this command, and it lacks"),
        more(("runn",), ("runn",), "refimpl: there is no command 'runn'; did you mean run?"),
    ],
)  # fmt: skip
def test_a_rank_that_fails_before_it_is_one_ends_all(
    first: tuple[str, ...], second: tuple[str, ...], says: str
) -> None:
    done = mpiexec(refimpl_with(*first), refimpl_with(*second))
    (said,) = lines(done.stderr)
    assert said.startswith(says) and (done.returncode, done.stdout) == (2, "")


@needs_mpi
@pytest.mark.slow
@pytest.mark.matrix  # three processes, for what the guard's own tests have
def test_ranks_that_wait_for_another_command_end() -> None:
    waits = "from refimpl.parallel import communicators; communicators.PATIENCE = 1.0"
    runs = f"from refimpl.cli import main; raise SystemExit(main({RUN}))"
    waiting = ["-c", f"{waits}; {runs}"]
    done = mpiexec(waiting, ["-m", "refimpl", "list", "networks"], waiting, copies=3)
    said = "refimpl run: rank 0 of 3 has waited 1 s for ranks that do not begin; start all with the same command"
    assert said in lines(done.stderr) and done.returncode == 9 and "rank 2" not in done.stderr


@needs_mpi
@pytest.mark.slow
@pytest.mark.matrix  # a process, for what the communicators' own tests have
@pytest.mark.parametrize("rank", [0, 1])
def test_the_launcher_of_another_mpi_is_one_line(rank: int) -> None:
    environment = os.environ | {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": "2"}
    done = subprocess.run([sys.executable, *refimpl_with()], capture_output=True, text=True, env=environment)
    said = "refimpl run: the mpiexec of Open MPI has started 2 processes, and mpi4py is that of "
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith(said) and "start them with " in done.stderr if rank == 0 else done.stderr == ""


@needs_mpi
@pytest.mark.slow
@pytest.mark.matrix
def test_the_all_reduce_is_measured_beside_mpis_own() -> None:
    done = mpiexec(["-m", "refimpl", "bench", "--all-reduce", "lenet", "--batch", "1", "--quick"])
    assert (done.returncode, done.stderr) == (0, "")
    for word in ("841.3 KiB, 1.643 MiB on the wire", "× as long", "reduced beside backward", "reduced after"):
        assert word in done.stdout


def test_the_ranks_of_one_machine_share_its_cores_and_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from types import SimpleNamespace

    from refimpl.cli import parallel

    def share(local_rank: int, visible: str | None = None, gpus: int = 0) -> tuple[str, str | None]:
        monkeypatch.delenv("REFIMPL_THREADS", raising=False)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        folder = tmp_path / str(gpus)
        for number in range(gpus):
            (folder / str(number)).mkdir(parents=True, exist_ok=True)
        monkeypatch.setattr(parallel, "GPUS", folder)
        parallel.take_share(SimpleNamespace(local_rank=local_rank, local_size=2))  # type: ignore[arg-type]
        return os.environ["REFIMPL_THREADS"], os.environ.get("CUDA_VISIBLE_DEVICES")

    monkeypatch.setattr("kernels.targets.cpu.threads.cores", lambda: 16)
    assert share(1) == ("8", None)
    assert share(1, gpus=4) == ("8", "1") and share(1, gpus=1) == ("8", "0")
    assert share(1, visible="5,7") == ("8", "7") and share(1, visible="3") == ("8", "3")
    monkeypatch.setattr("kernels.targets.cpu.threads.cores", lambda: 1)
    assert share(0) == ("1", None)
