"""Lab A1, liveness: pytest tutorials/labs/test_a1.py --submission my_modules.py"""

from refimpl.planner import BASELINE
from tutorials.labs.cases import FASTEST, LAYER_WISE, Lab
from tutorials.labs.checks import ModuleTests

PLAINEST = BASELINE.replace(algorithms=FASTEST)


class TestLiveness(ModuleTests):
    paper = LAYER_WISE.replace(name="SuperNeurons")
    lab = Lab("A1", ("liveness",), PLAINEST, paper, without=PLAINEST, bytes="peak", reach=(0.02, 0.6), near=0.5)
