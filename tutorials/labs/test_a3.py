"""Lab A3, a Recompute and a Cache: pytest tutorials/labs/test_a3.py --submission my_modules.py"""

from refimpl.names.presets import superneurons
from tutorials.labs.cases import LAYER_WISE, Lab
from tutorials.labs.checks import ModuleTests

THEIRS = superneurons.setup


class TestRecomputeAndCache(ModuleTests):
    paper = LAYER_WISE.replace(name="SuperNeurons", recompute=THEIRS.recompute, cache=THEIRS.cache)
    lab = Lab("A3", ("recompute", "cache"), LAYER_WISE, paper, without=LAYER_WISE, bytes="moved", reach=(0.1, 0.7))
