"""The ways through a module's operators: the script, and what iterations ran that was not the script.

A module may leave out layers, or take others, from one iteration to the next.  Each way that was taken is remembered,
with the script's operator at each place where it has one; so the next time nothing has to be looked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any, NamedTuple

from refimpl.torch.module_script import Entry, facts_of
from refimpl.torch.private import caller_of
from refimpl.torch.step_orders import Order

AHEAD, ALIKE = 4, 5  #: operators of the script that may be left out at a time; those that have to agree else
MOST = 20_000  #: places that are remembered
CHECKED = 8  #: shapes of inputs that are checked one by one


class SavePlace:
    """A tensor that autograd saves after a certain operator, and the orders that go before backward reads it."""

    __slots__ = ("orders",)

    def __init__(self) -> None:
        self.orders: tuple[Order, ...] = ()


class OperatorPlace:
    """An operator, after certain others."""

    __slots__ = (
        "asked", "at", "call", "checked", "end", "entry", "facts", "func", "is_quick", "next", "saves", "start", "then"
    )  # fmt: skip

    def __init__(self, func: Any, entry: Entry | None, at: int) -> None:
        self.func, self.at = func, at
        self.call: Any = None if func is None else caller_of(func)
        self.facts: Any = None if func is None else facts_of(func)  #: None: it is the beginning
        self.entry: Entry | None = None  #: None: it is not in the plan
        self.checked: set[tuple[int, int, int]] = set()  #: kinds of inputs, and what was dropped here and compared
        self.saves: list[SavePlace] = []  #: what autograd saves before the next operator
        self.next: dict[Any, OperatorPlace] = {}
        self.then: OperatorPlace = END  #: of these the last
        self.start: tuple[Order, ...] = ()  #: the entry's, until a place in backward is known for them
        self.end: tuple[Order, ...] = ()
        self.asked: list[bool] = []  #: not empty: backward was asked for that place, and has none
        self.give(entry)

    def give(self, entry: Entry | None) -> None:
        self.entry, self.asked = entry, []
        if entry is not None:
            self.at = entry.index + 1  #: the script goes on there
        self.start, self.end = (entry.start, entry.end) if entry is not None else ((), ())
        self.settle()

    def settle(self) -> None:
        """Find out whether anything has to be done here."""
        entry = self.entry
        self.is_quick = entry is not None and not (
            self.facts.writes or entry.before or entry.after or self.start or self.end
            or (self.facts.fresh and (entry.is_dropped or any(entry.labels)))
        )  # fmt: skip


END: Any = None
END = OperatorPlace(None, None, 0)  #: after the last operator


class KnownSave(NamedTuple):
    """What autograd saves on a way that is known, where a plan only copies."""

    shape: Any
    dtype: Any
    #: Of an output that is copied: label, entry and number; whether to copy it now, and to let it go then.
    made: tuple[tuple[str, Entry, int], bool, bool] | None
    before: list[Order]
    after: list[Order]
    place: SavePlace
    operator: OperatorPlace  #: the last one


class KnownWay(NamedTuple):
    """All of it, and what is counted there."""

    saved: list[KnownSave]
    end: list[Order]  #: orders after the last one
    unplanned: int
    kept: Any


class Paths:
    """All ways that are known."""

    def __init__(self, script: Sequence[Entry]) -> None:
        self.script = [entry for entry in script if entry.func is not None]
        for number, entry in enumerate(self.script):
            entry.index = number
        self.first = OperatorPlace(None, None, 0)
        self.places = 0
        self.kinds: dict[Any, int] = {}  #: shapes of inputs → their number
        self.known: dict[int, KnownWay] = {}  #: kind of inputs → a way that needs no mode, as the plan only copies
        self.patience = int(
            not any(entry.is_dropped for entry in self.script)
        )  #: calm iterations before that; 0: never
        self.calm = 0  #: iterations that met nothing new
        place = self.first
        for entry in self.script:
            place = self.add(place, OperatorPlace(entry.func, entry, 0))

    def add(self, before: OperatorPlace, place: OperatorPlace) -> OperatorPlace:
        if self.places < MOST:
            self.places += 1
            before.next[place.func] = before.then = place
        return place

    def kind(self, shapes: Any) -> int:
        """The number of these shapes; all later ones have the number of the last that is checked."""
        if shapes not in self.kinds and len(self.kinds) == CHECKED:
            return CHECKED - 1
        return self.kinds.setdefault(shapes, len(self.kinds))

    def note(self, kind: int, is_new: bool, way: KnownWay) -> None:
        """An iteration was watched."""
        self.calm = 0 if is_new else self.calm + 1
        if self.patience and self.calm >= self.patience and kind < CHECKED - 1:
            self.known[kind] = way

    def forget(self) -> None:
        """An iteration did not go the way that was known."""
        self.known, self.calm, self.patience = {}, 0, 8 * self.patience


class Stray:
    """The rest of a way that no iteration has taken before."""

    def __init__(self, paths: Paths, last: OperatorPlace) -> None:
        self.paths, self.last, self.begin = paths, last, last.at
        self.places: list[OperatorPlace] = []
        self._recent: list[Any] = []  #: operators since the script was lost

    def next(self, func: Any) -> OperatorPlace:
        """The place of the operator that runs now."""
        at = self.last.at
        self.last = self.paths.add(self.last, OperatorPlace(func, self._entry(func, at), at))
        self.places.append(self.last)
        return self.last

    def _entry(self, func: Any, at: int) -> Entry | None:
        script, recent = self.paths.script, self._recent
        if not recent:
            for entry in script[at : at + AHEAD]:
                if entry.func is func:
                    return entry
        recent.append(func)
        last = recent[-ALIKE:]
        if len(last) == ALIKE:
            for end in range(at + ALIKE, len(script) + 1):
                if [one.func for one in script[end - ALIKE : end]] == last:
                    recent.clear()
                    return script[end - 1]
        return None

    def align(self) -> None:
        """Now that the rest is known: the script's operators in it, as many as possible."""
        script = self.paths.script[self.begin :]
        funcs = [place.func for place in self.places]
        found: list[Entry | None] = [None] * len(funcs)
        for mine, real, size in SequenceMatcher(None, [one.func for one in script], funcs, False).get_matching_blocks():
            found[real : real + size] = script[mine : mine + size]
        at = self.begin
        for place, entry in zip(self.places, found, strict=True):
            place.at = at
            place.give(entry)
            at = place.at
