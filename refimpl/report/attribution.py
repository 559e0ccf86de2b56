"""Where the seconds of a program go, in a sentence: what `refimpl compare` says of each row."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from refimpl.planner import Allocate, CopyIn, CopyOut, Free, FromStore, Instruction, Launch, Program, ToStore
from refimpl.planner.losses import Losses
from refimpl.text import duration, size

SMALL = 5e-4  #: share of an iteration that is not worth a word
NAME = 40  #: letters of an adopted setup's name


@dataclass(frozen=True)
class Attribution:
    """The parts of an iteration, in seconds, and why a policy has them."""

    kernels: float  #: with the fastest algorithm each: the same for all programs of a network
    waits: float  #: in which no kernel ran
    slower: float  #: by which the algorithms are slower than the fastest
    rebuilds: float  #: of kernels that run again
    evicted_bytes: int  #: copied out because an allocation failed
    evictions: int  #: tensors pushed out, with a copy or without
    adopted: str  #: by a search that moves and rebuilds nothing; else empty
    digest: str  #: of allocations, kernels, copies and seconds: equal for the same program

    @classmethod
    def of(cls, program: Program) -> Attribution:
        losses, counts = Losses(program), program.counts
        idle = not (counts.offloaded_bytes or counts.evictions or counts.recomputed_layers)
        adopted = program.setup.name.partition(": ")[2] if program.tried and idle else ""
        return cls(
            losses.kernels, sum(losses.waits.values()), sum(losses.slower.values()), sum(losses.rebuilds.values()),
            counts.evicted_bytes, counts.evictions, textwrap.shorten(adopted, NAME, placeholder=" …"), digest(program),
        )  # fmt: skip

    @property
    def document(self) -> dict[str, Any]:
        """What JSON says of it."""
        parts = {"kernels": self.kernels, "waits": self.waits, "slower": self.slower, "rebuilds": self.rebuilds}
        return parts | {"evicted_bytes": self.evicted_bytes, "evictions": self.evictions}

    def sentence(self, name: str) -> str:
        """The causes of what a row takes longer than its kernels."""
        whole = self.kernels + self.waits + self.slower + self.rebuilds
        causes = (("waits", self.waits), ("slower algorithms", self.slower), ("rebuilds", self.rebuilds))
        told = [f"{duration(seconds)} to {cause}" for cause, seconds in causes if seconds > SMALL * whole]
        *most, last = told or ["nothing"]
        lost = f"{name} loses {', '.join(most)}{' and ' * bool(most)}{last}"
        if self.adopted:
            return f"{lost}; it adopted {self.adopted}: nothing is offloaded."
        if self.evicted_bytes:
            return f"{lost}; of the bytes out, evictions moved {size(self.evicted_bytes)}."
        return f"{lost}."


def attributions(rows: Sequence[tuple[str, Attribution | None]]) -> str:
    """A paragraph with a sentence for each row that fits; empty where none does."""
    first: dict[str, str] = {}  # digest → name
    sentences = []
    for name, one in rows:
        if one is None:
            continue
        if one.digest in first:
            sentences.append(f"{name} runs the same program as {first[one.digest]}.")
        else:
            first[one.digest] = name
            sentences.append(one.sentence(name))
    known = [one for _, one in rows if one is not None]
    if not known:
        return ""
    more = "  `view --against` shows where." if len(first) > 1 else ""
    return f"The fastest kernels take {duration(known[0].kernels)}.  {'  '.join(sentences)}{more}"


def digest(program: Program) -> str:
    """Equal for programs with the same allocations, kernels, copies and seconds; redundant waits may differ."""
    found = sha256(f"{program.planned_seconds:.6e}".encode())
    for it in program.instructions:
        found.update(repr(_plain(it)).encode(errors="backslashreplace"))
    return found.hexdigest()


def _plain(it: Instruction) -> tuple[object, ...]:
    match it:
        case Allocate() | Free():
            return it.op, it.tensor.name, it.address, it.nbytes
        case Launch():
            algorithm = it.choice.algorithm if it.choice else ""
            return it.op, str(it.call), it.addresses, algorithm, it.workspace, it.rebuild
        case CopyIn() | CopyOut():
            return it.op, it.tensor.name, it.address, it.pinned_address, it.tier
        case ToStore() | FromStore():
            return it.op, it.tensor.name, it.pinned_address, it.store_address
    return ()
