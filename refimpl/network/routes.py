"""The order in which layers run: depth first from a start; a layer is entered after all layers that lead to it.

SuperNeurons §3.1 (the execution order of non-linear networks): a layer counts its visits and is entered at the last
one; then its successors are visited in the order they were attached.  Backward runs the same from the last layer, with
producers and consumers swapped.  The code has a stack of its own, since networks 9,000 layers deep exist.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

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
