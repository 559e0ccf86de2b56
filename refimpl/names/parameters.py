"""A module's parameters as text: `superneurons-ahead:5`, `vdnnpp-compressed:density=0.3,limit=1GiB`.

Values come in the order of the class's fields, then as `name=value`, separated by commas.  A field's type says how a
value is read: yes or no, a number, a size such as 1GiB, one of some words, or several of these joined by +.
"""

from __future__ import annotations

import dataclasses
import math
from contextlib import suppress
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from refimpl.memory import UNLIMITED, PoolError
from refimpl.names.budgets import BudgetError, parse_bytes
from refimpl.planner import SetupError
from refimpl.slots.module_text import has_own_name, parameters, with_values
from refimpl.slots.setup import check_kind
from refimpl.text import counted, offer


def with_parameters(slot: str, module: Any, text: str) -> Any:
    """The module with some parameters changed; raises `SetupError`.

    Args:
        slot: the slot that it is for.
        module: an instance, or a class that is still to be called.
        text: what follows the colon; empty for the module as it is.
    """
    is_class = isinstance(module, type)
    known, name = parameters(module), getattr(module, "__name__" if is_class else "name", repr(module))
    given = read(f"{slot}={name}", hints(module, known), text)
    try:
        if is_class:
            module = module(**given)
        elif given:
            if has_own_name(module):
                given["name"] = with_values(name, known, known | given)
            module = dataclasses.replace(module, **given)
    except (TypeError, ValueError, PoolError) as error:
        raise SetupError(f"{slot}={name}{text and ':' + text}: {error}") from None
    check_kind(slot, module)
    return module


def hints(module: Any, known: dict[str, Any]) -> dict[str, Any]:
    """Parameter → its type."""
    try:
        found = get_type_hints(module if isinstance(module, type) else type(module))
    except NameError:  # a type that is imported for type checkers only
        found = {name: type(value) for name, value in known.items()}
    return {name: found[name] for name in known}


def read(what: str, types: dict[str, Any], text: str) -> dict[str, Any]:
    """`5,order=late` as parameter → value; `what` is whose they are, for the error text."""
    values: dict[str, Any] = {}
    by_name = False
    for place, part in enumerate(text.split(",") if text else ()):
        name, equals, value = part.partition("=")
        if not equals:
            if by_name:
                raise SetupError(f"{what}: {part!r} follows a name=value; values without a name come first")
            if place == len(types):
                raise SetupError(f"{what} takes {counted(len(types), 'parameter')}, and {part!r} is one too many")
            name, value = [*types][place], part
        by_name = by_name or bool(equals)
        if name not in types:
            raise SetupError(f"{what} has no parameter {name!r}" + (offer(name, types) if types else "; it has none"))
        if name in values:
            raise SetupError(f"{what}: {name} is given twice")
        try:
            values[name] = value_of(value.strip(), types[name])
        except ValueError as error:
            raise SetupError(f"{what}: {name} cannot be {value!r}; {error}") from None
    return values


def value_of(text: str, kind: Any) -> Any:
    """A value of a type; raises `ValueError` with what to write."""
    arms = get_args(kind)
    if get_origin(kind) in (Union, UnionType):
        if text == "none" and NoneType in arms:
            return None
        return value_of(text, next(arm for arm in arms if arm is not NoneType))
    if get_origin(kind) is tuple:
        return tuple(value_of(part, arms[0]) for part in text.split("+") if part)
    if get_origin(kind) is Literal:
        if text not in arms:
            raise ValueError(f"give {' or '.join(map(str, arms))}")
        return text
    if kind is bool:
        if text not in ("yes", "no"):
            raise ValueError("give yes or no")
        return text == "yes"
    if kind is int:
        return whole(text)
    if kind is float:
        return number(text)
    if kind is str:
        return text
    raise ValueError("it can be set in Python only")


def whole(text: str) -> int:
    """A whole number, or bytes written as a size."""
    if text.isascii() and text.isdecimal() and len(text) < 20:
        return int(text)
    with suppress(BudgetError):
        if (size := parse_bytes(text)) < UNLIMITED:
            return size
    raise ValueError("give a whole number of at least 0, or a size such as 512MiB")


def number(text: str) -> float:
    """A finite number of at least 0."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 <= found < math.inf:
        raise ValueError("give a number of at least 0")
    return found
