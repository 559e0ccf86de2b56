"""Wrong and half-right solutions of the labs: words of the lab's text → Python that is added to the solution."""

from __future__ import annotations

import re
from collections.abc import Callable

NO_REBUILD = """
Rebuilding.drops = lambda self: {}
Rebuilding.sources = lambda self: {}
Rebuilding.can_rebuild = lambda self, tensor, step: False
"""
RULES_ALONE = """
def search(self, attempt, budget, fixed_order):
    for rule in (BestFit(), FirstFit(), BothEnds()):
        try:
            return attempt(budget, allocator=rule)
        except DoesNotFit as error:
            misfit = error
    raise misfit

Mine.search = search
"""
OVERLAPPING = """
class Overlapping(PlacedPool):
    def _take(self, nbytes, stays):
        self.next += 1
        return (self.next * 512) % (self.size - nbytes) // 512 * 512 if nbytes < self.size else 0

Mine.open = lambda self, size: Overlapping(size, self.granularity, ())
Mine.search = lambda self, attempt, budget, fixed_order: attempt(budget)
"""

WRONG = {
    "A1": {
        "Released after the first use": (
            "Mine.bind = lambda self, context: Early(context)\n"
            "class Early:\n"
            "    def __init__(self, context): self.context = context\n"
            "    def dead(self, step):\n"
            "        return [t for t, uses in self.context.uses.items() if uses and uses[0] is step]\n"
        ),
        "Maps alone are released": (
            "whole = Mine.bind\n"
            "class Maps:\n"
            "    def __init__(self, bound): self.bound = bound\n"
            "    def dead(self, step): return [t for t in self.bound.dead(step) if t.kind == 'map']\n"
            "Mine.bind = lambda self, context: Maps(whole(self, context))\n"
        ),
    },
    "A3": {
        "The cache alone": NO_REBUILD
        + "Evicting.victim = lambda self, locked, now: next((t for t in self.here if t not in locked), None)\n",
        "A cache that evicts what the running step uses": (
            "Evicting.victim = lambda self, locked, now: next(iter(locked & self.here.keys()), None)\n"
        ),
        "A cache whose list is the class's": (
            "Evicting.plans = []\n"
            "def victim(self, locked, now):\n"
            "    if self not in self.plans: self.plans.append(self)\n"
            "    free = [t for t in self.here if t not in locked]\n"
            "    return free[len(self.plans) % len(free)] if free else None\n"
            "Evicting.victim = victim\n"
        ),
    },
    "A4": {"Two blocks overlap": OVERLAPPING, "Several rules in turn  ": RULES_ALONE},
    "A5": {
        "Every map, none prefetched": (
            "Fetching.due = lambda self, step: ()\nLeaving.highest = lambda self: 10 * self.context.budget\n"
        ),
        "A prefetch that keeps a list in its class": (
            "Fetching.kept = []\n"
            "def due(self, step):\n"
            "    self.kept.append(step.number)\n"
            "    return self.at.get(step.number, ()) if len(self.kept) % 3 else ()\n"
            "Fetching.due = due\n"
        ),
        "A map is offloaded before its last writer": (
            "Leaving.leaves = lambda self, step: [t for t in self.chosen if self.context.uses[t][0] is step]\n"
        ),
    },
    "A6": {"A paper's preset": "setup = presets.superneurons()\n"},
}

ROW = """    {place}
    if row < m and column < n:
        total = np.float32(0)
        for p in range(k):
            total += A[row * k + p] * B[p * n + column]
        C[row * n + column] = total
"""


def from_memory(solution: str, place: str) -> str:
    """A kernel without shared memory."""
    return solution[: solution.index("    a_tile = ")] + ROW.format(place=place)


def after_every_work(solution: str) -> str:
    """A script whose other stream waits after every launch and copy."""
    head, function, rest = re.split(r"(?m)^(def train_step.*?)(?=^def )", solution, flags=re.DOTALL)
    lines: list[str] = []
    for line in function.splitlines():
        if line.startswith("    event["):
            continue
        lines.append(line)
        if (line.endswith(")") and "stream=" in line) or "stream=" in line.partition("#")[0]:
            stream, other = ("memory", "compute") if "stream=memory" in line else ("compute", "memory")
            event = f'    event["{len(lines)}"]'
            lines += [f"{event}.record({stream})", f"{event}.wait({other})"]
    return head + "\n".join(lines) + "\n\n\n" + rest


def without(words: str) -> Callable[[str], str]:
    return lambda solution: solution.replace(words, "", 1)


#: Labs whose submission is one kernel or one script: words of the lab's text → the wrong solution, of the right one.
REWRITTEN: dict[str, dict[str, Callable[[str], str]]] = {
    "A0": {
        "A barrier is missing": without("        cuda.syncthreads()\n"),
        "One thread an element, x down": lambda solution: from_memory(
            solution.replace("block=(TILE, TILE)", "block=(32, 8)"),
            "column, row = cuda.grid(2)\n    # threads count down the columns\n"
            "    at = cuda.blockIdx.y * cuda.gridDim.x + cuda.blockIdx.x\n"
            "    at = at * 256 + cuda.threadIdx.y * 32 + cuda.threadIdx.x\n"
            "    row = at % m\n    column = at // m",
        ),
        "One thread an element, x along": lambda solution: from_memory(solution, "column, row = cuda.grid(2)"),
    },
    "A2": {
        "One wait is missing": without(
            '    event["conv1 copied out"].wait(compute)  # conv.forward writes conv2_out over conv1_out\n'
        ),
        "Every stream waits": after_every_work,
    },
}

#: Cheat → the criterion that it fails, what is added to the solution of A1, and words of the line.
CHEATS = {
    "monkeypatches verify, and leaves out frees": (
        "proved",
        "from refimpl.planner import program\n"
        "program.Program.verify = lambda self: None\n"
        "from refimpl.studies.grade import submission\n"
        "import __main__\n"
        "whole = __main__.document\n"
        "def less(program):\n"
        "    values = whole(program)\n"
        "    values['instructions'] = [it for it in values['instructions'] if it[0] != 'free']\n"
        "    return values\n"
        "__main__.document = less\n",
        "rule 2 (lifetime)",
    ),
    "says that the peak is small": (
        "proved",
        "import __main__\n"
        "whole = __main__.document\n"
        "__main__.document = lambda program: whole(program) | {'peak_bytes': 512, 'arena_bytes': 512}\n",
        "rule",
    ),
    "changes the network": (
        "proved",
        "whole = Mine.bind\n"
        "def bind(self, context):\n"
        "    for tensor in context.network.managed:\n"
        "        tensor.nbytes = min(tensor.nbytes, 512)\n"
        "    return whole(self, context)\n"
        "Mine.bind = bind\n",
        "changed it",
    ),
    "reads the clock": (
        "repeatable",
        "import time\n"
        "whole = Mine.bind\n"
        "class Sometimes:\n"
        "    def __init__(self, bound): self.bound = bound\n"
        "    def dead(self, step): return self.bound.dead(step) if time.time_ns() // 1000 % 7 else ()\n"
        "Mine.bind = lambda self, context: Sometimes(whole(self, context))\n",
        "another program the second time",
    ),
    "hands over the same program for every case": (
        "proved",
        "import __main__\n"
        "whole, first = __main__.document, []\n"
        "def same(program):\n"
        "    first.append(whole(program))\n"
        "    return first[0]\n"
        "__main__.document = same\n",
        "another network",
    ),
}
