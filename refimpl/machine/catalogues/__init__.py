"""The catalogues: which algorithms there are for a choosable call, each with its workspace and its work.

`own` is this project's fast kernels, `plain` its plain ones, without workspaces.  `cudnn4` and `cudnn5` are releases of
a published library, as far as it is public: a program planned with them can be simulated, and run only after it has
been planned with `own`.

A catalogue is one module with `options(convolution)`; to add one, name it in CATALOGUES.  A call of another family gets
a line in OPTIONS_KEY, and a function in the catalogues that have algorithms for it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from difflib import get_close_matches
from functools import lru_cache
from importlib import import_module

from refimpl.machine.catalogues import own_attention
from refimpl.machine.convolution import Convolution
from refimpl.machine.work import Option
from refimpl.network.call import Call
from refimpl.text import MachineError

#: Family of choosable calls → what a catalogue sees of one; equal ones have equal options.
OPTIONS_KEY: dict[str, Callable[[Call], Hashable]] = {
    "conv": Convolution.of, "attention": own_attention.Attention.of,
}  # fmt: skip

#: Catalogue → family of calls → the module here, imported when it is first asked, and its function that gives the
#: algorithms for one.  cuDNN has no attention: ours is offered instead.
CATALOGUES: dict[str, dict[str, str]] = {
    "own": {"conv": "own.options", "attention": "own_attention.options"},
    "plain": {"conv": "own.plain", "attention": "own_attention.plain"},
    "cudnn4": {"conv": "cudnn4.options", "attention": "own_attention.options"},
    "cudnn5": {"conv": "cudnn5.options", "attention": "own_attention.options"},
}


def checked_catalogue(name: str) -> str:
    """The name, if there is such a catalogue."""
    if name not in CATALOGUES:
        close = get_close_matches(name, CATALOGUES, 1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(CATALOGUES)}"
        raise MachineError(f"there is no catalogue {name!r}; {hint}")
    return name


def options(catalogue: str, call: Call) -> tuple[Option, ...]:
    """Every algorithm that the catalogue offers for a choosable call, in no order."""
    if call.family not in CATALOGUES[checked_catalogue(catalogue)]:
        raise MachineError(f"the catalogue {catalogue} has no algorithm for {call.function}; take the catalogue own")
    return options_of(catalogue, call.family, OPTIONS_KEY[call.family](call))


@lru_cache(maxsize=4096)
def options_of(catalogue: str, family: str, problem: Hashable) -> tuple[Option, ...]:
    """The same for what a catalogue sees of a call."""
    module, _, function = CATALOGUES[catalogue][family].partition(".")
    return tuple(getattr(import_module(f"{__name__}.{module}"), function)(problem))
