"""The order in which layers run: depth first from a start; a layer is entered after all layers that lead to it.

SuperNeurons §3.1 (the execution order of non-linear networks): a layer counts its visits and is entered at the last
one; then its successors are visited in the order they were attached.  Backward runs the same from the last layer, with
producers and consumers swapped.  The code has a stack of its own, since networks 9,000 layers deep exist.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

Node = TypeVar("Node")


def depth_first(
    start: Node, before: Callable[[Node], Sequence[Node]], after: Callable[[Node], Sequence[Node]]
) -> list[Node]:
    """Every node that can be reached from `start`, each after all of its `before`.

    Args:
        start: the first node.
        before: a node → the nodes that lead to it.
        after: a node → the nodes that it leads to, in the order of the visits.
    """
    visits: Counter[Node] = Counter()
    order = []
    stack = [start]
    while stack:
        node = stack.pop()
        visits[node] += 1
        if visits[node] < len(before(node)):
            continue
        order.append(node)
        stack.extend(reversed(after(node)))
    return order


def from_several(
    starts: Sequence[Node], before: Callable[[Node], Sequence[Node]], after: Callable[[Node], Sequence[Node]]
) -> list[Node]:
    """As `depth_first`, from several nodes, which nothing leads to: as if one node led to them all."""
    if len(starts) == 1:
        return depth_first(starts[0], before, after)
    first: Any = object()
    found: list[Any] = depth_first(
        first,
        lambda node: () if node is first else before(node),
        lambda node: starts if node is first else after(node),
    )
    return found[1:]
