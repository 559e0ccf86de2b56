"""A submission's source as a syntax tree.  The grader walks it itself, so it has to be small and shallow."""

from __future__ import annotations

import ast
from collections.abc import Callable

from refimpl.text import one_line

MOST_SOURCE = 1 << 18  #: bytes of a submission
DEEPEST = 100  #: nodes inside each other; what walks them calls itself a few times for each
MOST_BITS = 1000  #: of a whole number, which Python does not print with thousands of digits


def parsed(source: bytes, refusal: Callable[[str], Exception]) -> ast.Module:
    """The source's tree.

    Args:
        source: of the submission.
        refusal: makes the exception, of one line, that is raised where the source is refused.
    """
    if len(source) > MOST_SOURCE:
        raise refusal(f"the file has more than {MOST_SOURCE >> 10} KiB")
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise refusal(f"it is no Python: {one_line(str(error))}") from None
    except (RecursionError, MemoryError):  # of Python's parser, for a depth of thousands
        raise refusal(f"it is nested more than {DEEPEST} levels deep") from None
    level, depth = [*ast.iter_child_nodes(tree)], 0
    while level:
        depth += 1
        if depth > DEEPEST:
            raise refusal(f"line {getattr(level[0], 'lineno', 0)}: it is nested more than {DEEPEST} levels deep")
        for node in level:
            if isinstance(node, ast.Constant) and isinstance(node.value, int) and node.value.bit_length() > MOST_BITS:
                raise refusal(f"line {node.lineno}: a number has more than {MOST_BITS:,} bits")
        level = [inner for node in level for inner in ast.iter_child_nodes(node)]
    return tree
