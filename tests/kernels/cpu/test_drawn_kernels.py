"""Drawn kernels, with loops and branches around barriers: compiled, they do what their threads would."""

from __future__ import annotations

import linecache
import textwrap

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from kernels.targets import cpu
from kernels.targets.launch import REGISTRY, Floats, kernel, launch
from kernels.targets.shim import cuda
from tests.kernels.cpu.as_generators import run_as_generators

STATEMENTS = {
    "vary": "v{a} = v{a} + np.float32(t * {n})",
    "mix": "v{a} = v{b} - v{a} * np.float32(0.5)",
    "uniform": "u = u + {n}",
    "use": "v{a} = v{a} + np.float32(u)",
    "local": "own[{a}] = own[{b}] + v{a}",
    "read": "v{b} = v{b} + own[{a}]",
    "scratch": "for i in range(3):\n    scratch[i] = v{a} + np.float32(i)\nv{b} = scratch[2] - scratch[0]",
    "when": "if t % 3 == {a}:\n    v{b} = np.float32({n})\n    w = t + {n}",
    "late": "v{a} = v{a} + np.float32(w)",
    "rest": "cuda.syncthreads()\nif t > {n}:\n    own[{a}] = own[{b}] + v{a}\ncuda.syncthreads()",
    "exchange": "s[t] = v{a}\ncuda.syncthreads()\nv{b} = v{b} + s[(t + {n}) % 12]\ncuda.syncthreads()",
}


BLOCKS = ["while", "for", "if"]


@st.composite
def programs(draw, depth: int = 2) -> str:
    """A few statements, some of them loops and branches around barriers; every value stays exact in float32."""
    parts = []
    for _ in range(draw(st.integers(2, 5))):
        kind = draw(st.sampled_from([*STATEMENTS, *(BLOCKS if depth else [])]))
        numbers = {"a": draw(st.integers(0, 2)), "b": draw(st.integers(0, 2)), "n": draw(st.integers(1, 5))}
        if kind in STATEMENTS:
            parts.append(STATEMENTS[kind].format(**numbers))
            continue
        head = {
            "while": f"c{depth} = 0\nwhile c{depth} < n:\n    c{depth} = c{depth} + 1",
            "for": f"for k{depth} in range(0, n + {numbers['n']}, 2):\n    v0 = v0 + np.float32(k{depth})",
            "if": f"if u % 2 == {numbers['a'] % 2}:\n    u = u + 1",
        }[kind]
        body = draw(programs(depth - 1)) + "\n" + STATEMENTS["exchange"].format(**numbers)  # a barrier in every one
        parts.append(head + "\n" + textwrap.indent(body, "    "))
    return "\n".join(parts)


HEAD = """
def drawn(x: Floats, y: Floats, n: int) -> None:
    s = cuda.shared.array(12, np.float32)
    own = cuda.local.array(3, np.float32)
    scratch = cuda.local.array(3, np.float32)
    t = cuda.threadIdx.x
    i0 = cuda.blockIdx.x * 12 + t
    u = n
    w = 0
    v0 = x[i0]
    v1 = np.float32(t)
    v2 = np.float32(1)
    for i in range(3):
        own[i] = np.float32(i)
"""


TAIL = """
    y[i0] = v0 + v1 * np.float32(2) + v2 + own[0] - own[1] + own[2]
"""


# Each example compiles three times: few of them, and no shrinking.
FEW = settings(max_examples=4, phases=[Phase.explicit, Phase.reuse, Phase.generate])


@pytest.mark.slow
@FEW
@given(program=programs())
def test_drawn_kernels_do_what_their_threads_would(program: str) -> None:
    as_generators_would(program)


@pytest.mark.campaign
@settings(FEW, max_examples=500)
@given(program=programs())
def test_many_drawn_kernels_do_what_their_threads_would(program: str) -> None:
    as_generators_would(program)


def test_threads_that_rest_keep_their_local_arrays() -> None:
    """Some store into an array in one turn of a loop and read it in a later one, when others store."""
    as_generators_would("""
for k in range(0, 3):
    if t % 3 == k:
        for i in range(3):
            scratch[i] = v0 + np.float32(i)
    v1 = v1 + (scratch[k] if t % 3 <= k else np.float32(0))
    cuda.syncthreads()
    if t > 4:
        own[1] = own[1] + v1
    cuda.syncthreads()
""")


def test_a_parameter_that_a_kernel_assigns_to_is_a_variable_of_each_thread() -> None:
    """In one block as in the next; `n` is uniform until a thread's index is added to it."""
    for change in ("n = n + 2", "n = n + t"):
        as_generators_would(f"""
v0 = np.float32(n)
cuda.syncthreads()
{change}
cuda.syncthreads()
v1 = np.float32(n) + v0
""")


def as_generators_would(program: str) -> None:
    source = HEAD + textwrap.indent(program, "    ") + TAIL
    name = f"<drawn {abs(hash(source))}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    namespace = {"np": np, "cuda": cuda, "Floats": Floats, "__name__": "drawn"}
    exec(compile(source, name, "exec", dont_inherit=True), namespace)
    made = kernel(block=12)(namespace["drawn"])
    x = np.arange(24, dtype=np.float32)
    expected, got = np.zeros(24, np.float32), np.zeros(24, np.float32)
    with np.errstate(all="ignore"):
        run_as_generators(made, 2, x, expected, 3)
    launch(made, 2, x, got, 3)
    np.testing.assert_allclose(got, expected, rtol=1e-5)
    for order in ("forward", "reverse"):
        with cpu.checked(order):
            again = np.zeros(24, np.float32)
            launch(made, 2, x, again, 3)
        np.testing.assert_allclose(again, expected, rtol=1e-5)
    del REGISTRY["drawn"]
