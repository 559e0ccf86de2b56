"""A module, its parameters and their values as text, as `--set` takes them."""

from __future__ import annotations

import dataclasses
from typing import Any

from refimpl.text import UNITS


def parameters(module: Any) -> dict[str, Any]:
    """A module's parameters and their values; given its class, their defaults (or `dataclasses.MISSING`).

    A field without `repr` is no parameter: a decision that the module carries as data, such as every block's address.
    """
    if not dataclasses.is_dataclass(module):
        return {}
    shown = [one for one in dataclasses.fields(module) if one.init and one.repr]
    fields = [one for one in shown if one.name not in ("name", "summary")]
    if isinstance(module, type):
        return {one.name: one.default for one in fields}
    return {one.name: getattr(module, one.name) for one in fields}


def module_text(module: Any) -> str:
    """A module as `--set` takes it: its name, with the parameters that differ from its class's defaults.

    A class whose instances get a name each, as vDNN's offload of all inputs and of CONV's, is called by that name.
    """
    if has_own_name(module):
        return str(module.name)
    return with_values(module.name, parameters(type(module)), parameters(module))


def has_own_name(module: Any) -> bool:
    """Whether the name is a field, and not its class's."""
    return dataclasses.is_dataclass(module) and "name" in (one.name for one in dataclasses.fields(module))


def with_values(name: str, defaults: dict[str, Any], values: dict[str, Any]) -> str:
    """`superneurons-ahead:5`, `vdnnpp-on-demand:limit=1GiB`: a module's name and the values that are not defaults."""
    given: list[str] = []
    for place, (parameter, value) in enumerate(values.items()):
        if value != defaults[parameter]:
            given.append(text_of(value) if len(given) == place else f"{parameter}={text_of(value)}")
    return f"{name}:{','.join(given)}" if given else name


def text_of(value: Any) -> str:
    """A value as the command takes it: yes or no, 1GiB for 2^30, conv+pool for a tuple."""
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    if isinstance(value, tuple):
        return "+".join(map(text_of, value))
    if isinstance(value, int) and value:
        for unit, name in UNITS:
            if value % unit == 0:
                return f"{value // unit}{name}"
    return str(value)
