"""Lab A6: the contest.  As long as you like; after everything else.

Any modules in any slots, the papers' included: fit what others do not, and lose less time.

What to write
    Either names of slots, as in the other labs (`offload = …`, `cache = …`, and `copy_streams`, `join`, `barrier`),
    which fill the lab's setup; or one whole setup, `setup = …`.

What to know
    `refimpl compare NETWORK --machine titan-x:own --budget 0.7` shows every paper on one network;
    `refimpl study NETWORK --bound` over all budgets, with the lower bound; `refimpl compare --bound` says how far
    each is from it.  Rules: a program is the network's own calls in their order, proved by the grader; the clock is
    the machine's model.
    What the papers leave undone: vDNN moves all maps of a kind or none; SuperNeurons looks one step back;
    AccUDNN plans one network at a time and never recomputes.  Each map can have a fate of its own.

Grade it: refimpl grade my_modules.py --task A6; the ranking: refimpl grade --contest FOLDER.  Pass mark: 60 of 100.
    This skeleton, the baseline                                   at most 25
    A paper's preset that fits most budgets                       at least 60
The ranking counts the hidden cases that fit, and then the mean slow-down: points are for the first only.
"""

from __future__ import annotations

from refimpl import presets

setup = presets.baseline()  # yours
