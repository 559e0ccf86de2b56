"""Presets: named setups, each what one paper does.  A preset is called with the modules that are to differ, by name.

    setup = vdnn_all(algorithms="performance", allocator="first-fit")

To add one, write its setup in its paper's `presets.py` and name it here.

A setup of a Python module of your own has a name too: `my_modules:MINE`.  By the same way the setups of a study are
found (`NEIGHBOURS`), which nothing here imports before its name is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from refimpl.names import imported_from
from refimpl.names.modules import assignments, from_outside, modules
from refimpl.slots.errors import SetupError
from refimpl.slots.setup import FIELDS, Setup
from refimpl.text import offer


@dataclass(frozen=True)
class Preset:
    """A setup with a name.  Calling it gives the setup, with other modules in some slots."""

    name: str
    where: str  #: MODULE:NAME, imported when it is used
    about: str  #: one line

    @property
    def setup(self) -> Setup:
        found = imported_from(self.where)
        assert isinstance(found, Setup)
        return found

    def __call__(self, **named: Any) -> Setup:
        """The setup; `named` are modules, or their names, by slot (and `join="no"`, `copy_streams="shared"`)."""
        return self.setup.replace(**named)


baseline = Preset(
    "baseline", "slots.setup:BASELINE", "Nothing is offloaded, dropped or evicted: a framework without a memory policy."
)
vdnn_all = Preset(
    "vdnn-all",
    "vdnn:VDNN_ALL",
    "vDNN: the inputs of every CONV, POOL and CONCAT are offloaded, and prefetched by its window.",
)
vdnn_conv = Preset(
    "vdnn-conv", "vdnn:VDNN_CONV", "vDNN: the inputs of every CONV are offloaded, and prefetched by its window."
)
vdnn_dyn = Preset(
    "vdnn-dyn",
    "vdnn:VDNN_DYN",
    "vDNN's dynamic policy: the first of its candidates, from fast to frugal, that fits the budget.",
)
vdnnpp_all = Preset(
    "vdnnpp-all",
    "vdnnpp:VDNNPP_ALL",
    "vDNN++: no join, a pool that is searched for, maps compressed on the host; all but ReLU, FC and softmax.",
)
vdnnpp_vdnn_all = Preset(
    "vdnnpp-vdnn-all",
    "vdnnpp:VDNNPP_VDNN_ALL",
    "vDNN++, with the maps that vDNN-all offloads: fewer on forked networks.",
)
vdnnpp_conv = Preset("vdnnpp-conv", "vdnnpp:VDNNPP_CONV", "vDNN++, with the inputs of every CONV.")
vdnnpp_alternate_conv = Preset(
    "vdnnpp-alternate-conv",
    "vdnnpp:VDNNPP_ALTERNATE_CONV",
    "vDNN++, with the inputs of every second CONV, from the first.",
)
vdnnpp_dyn = Preset(
    "vdnnpp-dyn", "vdnnpp:VDNNPP_DYN", "vDNN++'s dynamic policy: the first of its candidates that fits the budget."
)
superneurons_liveness = Preset(
    "superneurons-liveness",
    "superneurons.presets:LIVENESS",
    "SuperNeurons' liveness analysis alone: a tensor is freed after its last use.",
)
superneurons_offload = Preset(
    "superneurons-offload",
    "superneurons.presets:OFFLOAD",
    "SuperNeurons: outputs of CONV and FC are offloaded, and prefetched 3 steps ahead; dynamic workspaces.",
)
superneurons_recompute = Preset(
    "superneurons-recompute",
    "superneurons.presets:RECOMPUTE",
    "SuperNeurons: cheap maps are dropped and recomputed; checkpoints stay.",
)
superneurons = Preset(
    "superneurons",
    "superneurons.presets:EVERYTHING",
    "SuperNeurons, all of it: cheap maps are recomputed, the others move only when the device is full.",
)
accudnn = Preset(
    "accudnn",
    "combined.papers:ACCUDNN",
    "AccUDNN (our reconstruction): a model chooses what is offloaded and when it returns; the fastest plan is adopted.",
)
combined = Preset(
    "combined",
    "combined:COMBINED",
    "The four papers in one (ours): maps are kept, offloaded or dropped, steps cut; a search that the planner judges.",
)

#: Name → preset.
PRESETS: dict[str, Preset] = {one.name: one for one in [*globals().values()] if isinstance(one, Preset)}


class Neighbour(NamedTuple):
    """A setup that is no paper's policy."""

    where: str  #: as one of your own is named: MODULE:NAME
    about: str  #: one line


#: Name → setup of the study `refimpl.studies.neighbours`, what others than the four papers do; and what one of the four
#: compares itself with, as we read it.
NEIGHBOURS: dict[str, Neighbour] = {
    "chen-sqrt": Neighbour(
        "refimpl.studies.neighbours:CHEN", "Chen et al. 2016: √n maps are kept; each segment between two runs again."
    ),
    "dtr": Neighbour(
        "refimpl.studies.neighbours:DTR",
        "DTR: what is cheap, large and long unused is evicted, and recomputed on demand.",
    ),
    "rotor": Neighbour("refimpl.studies.neighbours:ROTOR", "Rotor: the optimal schedule of recomputation for a chain."),
    "save-on-cpu": Neighbour(
        "refimpl.studies.neighbours:SAVE_ON_CPU",
        "PyTorch's save_on_cpu: every saved map is copied out at once, and back on demand.",
    ),
    "superneurons-eager": Neighbour(
        "refimpl.superneurons.presets:EAGER",
        "SuperNeurons without its cache, as we read it: CONV's outputs leave at once, each use waits for a copy in.",
    ),
}

#: Paper → its presets, the one that does most of the paper first.
PAPERS: dict[str, tuple[str, ...]] = {
    "baseline": ("baseline",),
    "vDNN": ("vdnn-dyn", "vdnn-all", "vdnn-conv"),
    "vDNN++": ("vdnnpp-dyn", "vdnnpp-all", "vdnnpp-vdnn-all", "vdnnpp-conv", "vdnnpp-alternate-conv"),
    "SuperNeurons": ("superneurons", "superneurons-offload", "superneurons-recompute", "superneurons-liveness"),
    "AccUDNN": ("accudnn",),
    "combined": ("combined",),
}


def combinations(paper: str) -> tuple[Setup, ...]:
    """A paper's presets, and every combination of its own modules: the setups of which its row shows the best."""
    from refimpl.combined.papers import papers

    return tuple(PRESETS[name].setup for name in PAPERS[paper]) + papers().get(paper, ())


SEARCH = ("effort", "seed")  #: what `setup` takes for the search of the preset combined, beside modules


def setup(text: str, named: Mapping[str, Any] | None = None) -> Setup:
    """A setup by name, as in `vdnn-all` or `vdnn-all, join=no`.  Raises `SetupError`.

    Args:
        text: a preset's name (`baseline` where it is left out), or MODULE:NAME of a setup of your own, and
            `slot=module` words.
        named: other modules in some slots, by name or as objects; they come before those of the text.  `fates` is a
            file of fates: its maps get them, and the slots that it names their modules.  `effort` is how many plans
            the search of the preset `combined` makes at most, `seed` that of its draws.
    """
    preset, own = parse(text)
    base = PRESETS[preset].setup if preset in PRESETS else elsewhere(preset)
    given = own | dict(named or {})
    path = given.pop("fates", None)
    search = {name: given.pop(name) for name in SEARCH if name in given}
    made = base.replace(**modules(given)) if path is None else with_fates(path, base, given)
    return searching(made, search) if search else made


def elsewhere(name: str) -> Setup:
    """The setup of a study by its name, or one of a Python module or file: `my_modules:MINE`, `folder/my.py:MINE`.

    Raises `SetupError`.
    """
    known = [*PRESETS, *NEIGHBOURS]
    where, colon, found = (NEIGHBOURS[name].where if name in NEIGHBOURS else name).rpartition(":")
    if found.endswith(".py"):
        raise SetupError(f"preset={name} names no setup of the file; write {name}:NAME")
    in_file = where.endswith(".py") and found.isidentifier()
    if not colon or not (in_file or all(part.isidentifier() for part in (*where.split("."), found))):
        raise SetupError(f"there is no preset {name!r}{offer(name, known)}")
    made = from_outside("preset", where, found, Setup, known)
    if isinstance(made, Preset):
        return made.setup
    if not isinstance(made, Setup):
        raise SetupError(f"preset={name} is no setup; write one as in refimpl.Setup('mine', offload=BigMaps())")
    return made


def searching(made: Setup, given: Mapping[str, str]) -> Setup:
    """The preset combined with the effort and the seed of its search.  Raises `SetupError`."""
    from refimpl.combined import Combined

    for name, value in given.items():
        if not isinstance(made, Combined):
            raise SetupError(f"{name}={value} is for combined, and {made.name} does not search as it does")
        if not value.isdecimal() or (name == "effort" and not int(value[:9])):
            raise SetupError(f"{name}={value}: give a whole number, as in effort=200, the plans at most, or seed=1")
        made = replace(made, **{name: int(value[:9])})  # type: ignore[arg-type]
    return made


def with_fates(path: str, base: Setup, named: Mapping[str, Any]) -> Setup:
    """A setup whose maps have the fates in a file.  Raises `SetupError`.

    Args:
        path: the file.
        base: what is in the slots that neither the file nor `named` fills.
        named: other modules, by slot, as for `setup`.
    """
    from refimpl import combined

    for slot in combined.FILLED:
        if slot in named and slot != "prefetch":
            raise SetupError(f"fates={path} fills {slot}; leave out {slot}={named[slot]}, or the fates")
    saved = combined.load(path)
    return combined.setup_with(saved.fates, base, name=f"fates={path}", **modules(dict(saved.slots) | dict(named)))


def parse(text: str) -> tuple[str, dict[str, str]]:
    """A setup's name as a preset's name and what differs: `vdnn-all, join=no` is `vdnn-all` and join → no.

    Words are separated by spaces or commas.  Where a module has parameters, a comma belongs to them unless a slot
    follows: `offload=vdnnpp-conv:conv+fc,every=2,join=no`.
    """
    words: list[str] = []
    for word in text.split():
        parts: list[str] = []
        for part in word.split(","):
            if parts and ":" in parts[-1] and part and part.partition("=")[0].replace("-", "_") not in FIELDS:
                parts[-1] += f",{part}"
            else:
                parts.append(part)
        words += filter(None, parts)
    names = [word for word in words if "=" not in word]
    if len(names) > 1:
        raise SetupError(f"{text!r} names {' and '.join(names)}; a setup has one preset, and slot=module words")
    return names[0] if names else "baseline", assignments(word for word in words if "=" in word)
