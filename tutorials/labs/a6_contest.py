"""Lab A6: the contest.  As long as you like; after everything else.

Any modules in any slots, the papers' included: fit what others do not, and lose less time.

What to write
    Either names of slots, as in the other labs (`offload = …`, `cache = …`, and `copy_streams`, `join`, `barrier`),
    which fill the lab's setup; or one whole setup, `setup = …`.

What to know
    `refimpl compare NETWORK --machine titan-x:own --budget 0.7` shows every paper on one network;
    `refimpl study NETWORK --bound` over all budgets, with the lower bound; `refimpl compare --bound` says how far
    each is from it.  Rules: a program is the network's own calls in their order, proved by `verify`; the clock is
    the machine's model.
    What the papers leave undone: vDNN moves all maps of a kind or none; SuperNeurons looks one step back;
    AccUDNN plans one network at a time and never recomputes.  Each map can have a fate of its own.

Test it: pytest tutorials/labs/test_a6.py --submission my_modules.py
Rank many: python -m tutorials.labs.contest FOLDER
    This skeleton, the baseline                                   0: it fits nothing
    SuperNeurons' preset                                          99
    AccUDNN's preset                                              100
The ranking counts the hidden cases that fit, and then the mean slow-down: points are for the first only.
"""

from __future__ import annotations

from refimpl import presets

setup = presets.baseline()  # yours
