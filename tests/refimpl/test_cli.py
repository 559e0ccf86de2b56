"""The command's manners: what it prints, how it ends, and what it says to a slip of the finger."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from kernels.launch import REGISTRY
from refimpl import __version__, cli, listing
from refimpl.cli import main


def wrong(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What the command says to this, in one line, ending with status 2."""
    try:
        status = main(list(arguments))
    except SystemExit as exit:  # argparse leaves by itself
        status = int(exit.code or 0)
    said = capsys.readouterr()
    assert status == 2 and said.out == "" and said.err.count("\n") == 1 and "Traceback" not in said.err
    return said.err.strip()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["lst"], "refimpl: there is no command 'lst'; did you mean list? There are: list, bench, demo."),
        (["list", "kernles"], "did you mean kernels?"),
        (["list", "kernels", "--famly", "gemm"], "--famly is not understood here; did you mean --family?"),
        (["list", "kernels", "--family", "gem"], "there is no kernel family 'gem'; did you mean gemm?"),
        (["list", "kernels", "--json", "--markdown"], "not allowed with argument --json"),
        (["bench", "--family", "poll"], "there is no kernel family 'poll'; did you mean pool?"),
        (["bench", "--family", "xyzzy"], "There are: gemm, conv"),
        (["bench", "--device", "cpuu"], "there is no device 'cpuu'; did you mean cpu?"),
        (["bench", "--quick", "--write", "--device", "cpu"], "leave out --quick"),
        (["bench", "--write", "--family", "fc", "--device", "cpu"], "leave out --family"),
        ([], "arguments are required"),
    ],
)
def test_wrong_use_is_one_line_with_an_offer(
    capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    assert says in wrong(capsys, *arguments)


def test_list_names_every_kernel_within_100_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "kernels"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    named = {word for line in lines for word in line.split()}
    assert set(REGISTRY) <= named and len(REGISTRY) > 30


def test_list_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "kernels", "--family", "conv", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {"conv.direct", "conv.bias"} <= {row["family"] for row in rows}
    assert all(row["family"].startswith("conv.") and row["file_does"] and row["block"] for row in rows)


def test_list_as_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "kernels", "--family", "relu", "--markdown"]) == 0
    head, rule, *rows = capsys.readouterr().out.strip().splitlines()
    assert head == "| file, kernel | what it does | block |" and set(rule) <= set("|- ") and len(rows) == 3


def test_every_kernel_says_what_it_does() -> None:
    assert [row.kernel for row in listing.rows() if not (row.does or row.file_does)] == []


@pytest.mark.slow
def test_list_with_machine_code(capsys: pytest.CaptureFixture[str]) -> None:
    from kernels import machine_code

    why_not = machine_code.why_not()
    if why_not:
        pytest.skip(why_not)
    assert main(["list", "kernels", "--family", "relu", "--machine-code", "--json"]) == 0
    for row in json.loads(capsys.readouterr().out):
        assert [used["target"] for used in row["machine_code"]] == ["7.5", "8.0", "9.0"]
        assert all(0 < used["registers"] <= 255 for used in row["machine_code"])


def test_without_the_cuda_wheels_machine_code_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from kernels import machine_code

    monkeypatch.setattr(machine_code, "why_not", lambda: "no compiler: pip install it")
    assert wrong(capsys, "list", "kernels", "--machine-code") == "refimpl list kernels: no compiler: pip install it"


def test_a_failing_gpu_is_one_line_and_status_4(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from kernels.shim import cuda

    def fails(_: object) -> int:
        raise cuda.cudadrv.driver.CudaAPIError(2, "out of\nmemory")

    monkeypatch.setattr(cli, "bench", fails)
    assert main(["bench"]) == 4
    said = capsys.readouterr().err
    assert said.startswith("refimpl bench: the GPU failed: ") and said.count("\n") == 1 and "out of memory" in said


def test_an_error_of_our_own_is_not_taken_for_the_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: object) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(cli, "bench", fails)
    with pytest.raises(ZeroDivisionError):
        main(["bench"])


def test_as_a_program() -> None:
    """The exit status reaches the shell."""
    asked = subprocess.run([sys.executable, "-m", "refimpl", "--version"], capture_output=True, text=True, check=True)
    assert asked.stdout == f"refimpl {__version__}\n"
    assert subprocess.run([sys.executable, "-m", "refimpl", "nonsense"], capture_output=True).returncode == 2
