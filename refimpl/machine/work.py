"""An algorithm's work: operations and bytes.  A machine turns them into seconds."""

from __future__ import annotations

from math import inf
from typing import Literal, NamedTuple

#: Arithmetic of one kind runs at one share of the machine's peak: our own convolutions without transforms, forward and
#: in the two backward passes; a library's products of matrices (its convolutions without transforms, fully connected
#: layers, the point-by-point products of an FFT); and its gradients of weights, sums over all images.
Kind = Literal["forward", "backward", "products", "weights"]

#: Memory traffic: arrays read and written in order, or rearranged (transforms, columns).
Traffic = Literal["streaming", "transforms"]


class Tiling(NamedTuple):
    """Equal tiles: the operations of all of them, each whole, and their number."""

    flops: float
    tiles: float


class Work(NamedTuple):
    """The work of one kernel of an algorithm, run `times` times: operations and bytes of all runs together."""

    kind: Kind
    flops: float
    nbytes: float
    times: int = 1
    traffic: Traffic = "streaming"
    blocks: float = inf  #: side by side; with fewer than there are multiprocessors some of those are idle
    speed: float = 1.0  #: relative to the usual rate and bandwidth
    early: bool = False  #: a kernel of the library's first generation, which needs no workspace
    tilings: tuple[Tiling, ...] = ()  #: ways to cut `flops` into tiles, of which the fastest is taken


class Option(NamedTuple):
    """An algorithm of a catalogue with a workspace, and what it has to do."""

    algorithm: str
    workspace_bytes: int
    work: tuple[Work, ...]
    cpu_only: bool = False  #: kernels for a CPU's vector registers, which a GPU runs slowly
