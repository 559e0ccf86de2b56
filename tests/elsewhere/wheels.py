"""`make laptops`: has every requirement a wheel on every kind of laptop?  It asks pip, and needs a network.

pip evaluates markers for the Python that runs it, whatever its --platform says.  So the markers are evaluated here, for
each kind, and pip is asked level by level: for the requirements, for what these require, and so on.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

#: Kind → the wheels' platforms, and what markers compare with there: sys_platform, platform_system, platform_machine.
KINDS = {
    "macOS, ARM": (["macosx_12_0_arm64"], "darwin Darwin arm64"),
    "Windows, x86-64": (["win_amd64"], "win32 Windows AMD64"),
    "Linux, ARM": (
        ["manylinux2014_aarch64", *(f"manylinux_2_{minor}_aarch64" for minor in range(28, 16, -1))],
        "linux Linux aarch64",
    ),
    "macOS, Intel": (["macosx_12_0_x86_64"], "darwin Darwin x86_64"),
}
PYTHONS = ("3.10", "3.13")
EXTRAS = ("test", "docs", "tutorials", "torch")
#: Numba has had none there since 0.63; the container is for these, too.
WITHOUT = {"macOS, Intel": {"numba"}}


def required(lines: list[str], extras: set[str], environment: dict[str, str]) -> set[str]:
    """Those of a package's requirements that its extras have in an environment, as pip is asked for them."""
    found = set()
    for requirement in map(Requirement, lines):
        marker, requirement.marker = requirement.marker, None
        if marker is None or any(marker.evaluate({**environment, "extra": extra}) for extra in extras | {""}):
            found.add(str(requirement))
    return found


def answers(wanted: list[str], platforms: list[str], python: str) -> tuple[list[Any], list[str]]:
    """What pip says of the wheels that it would install for some requirements; and the requirements without one."""
    command = [
        sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--dry-run",
        "--ignore-installed", "--no-deps", "--only-binary=:all:", "--report=-", "--target=.",
        f"--python-version={python}", *(f"--platform={one}" for one in platforms), *wanted,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return [found["metadata"] for found in json.loads(done.stdout)["install"]], []
    if len(wanted) == 1:
        return [], wanted
    halves = [answers(half, platforms, python) for half in (wanted[::2], wanted[1::2])]
    return halves[0][0] + halves[1][0], halves[0][1] + halves[1][1]


def lacking(kind: str, python: str) -> tuple[set[str], int]:
    """The requirements without a wheel, and how many packages have one."""
    platforms, words = KINDS[kind]
    system, name, machine = words.split()
    environment = {
        "sys_platform": system, "platform_system": name, "platform_machine": machine, "python_version": python,
        "python_full_version": f"{python}.0", "os_name": "nt" if system == "win32" else "posix",
        "implementation_name": "cpython", "platform_python_implementation": "CPython",
    }  # fmt: skip
    level = required(metadata.requires("refimpl") or [], {*EXTRAS}, environment)
    known, lacks = dict[str, Any](), set[str]()
    done = set[str]()
    while level := level - done:
        done |= level
        new = [one for one in level if canonicalize_name(Requirement(one).name) not in known]
        found, without = answers(sorted(new), platforms, python) if new else ([], [])
        known |= {canonicalize_name(about["name"]): about for about in found}
        lacks |= {*without}
        next_level = set[str]()
        for one in map(Requirement, level):
            about = known.get(canonicalize_name(one.name), {})
            next_level |= required(about.get("requires_dist", []), one.extras, environment)
        level = next_level
    return lacks, len(known)


def main() -> int:
    """1 if a requirement has no wheel where this project says that it works."""
    status = 0
    for kind in KINDS:
        for python in PYTHONS:
            lacks, count = lacking(kind, python)
            words = f"no wheel of {', '.join(sorted(lacks))}" if lacks else "all have a wheel"
            print(f"{kind:16} Python {python:5} {count:3} packages, {words}", flush=True)
            status |= {Requirement(one).name for one in lacks} != WITHOUT.get(kind, set())
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
