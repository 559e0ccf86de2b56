"""The catalogues: which algorithms there are for a pass of a convolution, each with its workspace and its work.

`own` is this project's kernels.  `cudnn4` is a published library, as far as it is public: a program planned with it can
be simulated, and run only after it has been planned again with `own`.

A catalogue is one module with `options(convolution)`; to add one, name it in CATALOGUES.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from functools import lru_cache

from refimpl.machine.catalogues import cudnn4, own
from refimpl.machine.convolution import Convolution
from refimpl.machine.work import MachineError, Option

CATALOGUES: dict[str, Callable[[Convolution], list[Option]]] = {"own": own.options, "cudnn4": cudnn4.options}


def known(name: str) -> str:
    """The name, if there is such a catalogue."""
    if name not in CATALOGUES:
        close = get_close_matches(name, CATALOGUES, 1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(CATALOGUES)}"
        raise MachineError(f"there is no catalogue {name!r}; {hint}")
    return name


@lru_cache(maxsize=4096)
def options(catalogue: str, convolution: Convolution) -> tuple[Option, ...]:
    """Every algorithm the catalogue offers for this pass, in no order."""
    return tuple(CATALOGUES[known(catalogue)](convolution))
