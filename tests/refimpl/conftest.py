"""The command, run in this process."""

from __future__ import annotations

from typing import Any

import pytest

from refimpl.cli import main
from tests.refimpl.cli.said import Command, Said, Wrong


@pytest.fixture
def refimpl(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs the command: status, standard output, standard error."""

    def command(*arguments: Any) -> Said:
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as left:  # argparse leaves by itself
            status = int(left.code or 0)
        said = capsys.readouterr()
        return Said(status, said.out, said.err)

    return command


@pytest.fixture
def wrong(refimpl: Command) -> Wrong:
    """What the command says to a wrong use: one line on standard error, nothing else, and status 2."""

    def command(*arguments: Any) -> str:
        said = refimpl(*arguments)
        assert said.status == 2 and said.out == "" and said.err.count("\n") == 1 and "Traceback" not in said.err
        return said.err.strip()

    return command
