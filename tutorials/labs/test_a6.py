"""Lab A6, the contest: pytest tutorials/labs/test_a6.py --submission my_setup.py.  `contest.py` ranks many files."""

from refimpl.names.presets import superneurons
from refimpl.slots.setup import FIELDS
from tutorials.labs.cases import LAYER_WISE, Lab
from tutorials.labs.checks import ModuleTests

PAPER = superneurons.setup.replace(name="SuperNeurons")
CONTEST = Lab(
    "A6", (), LAYER_WISE, PAPER, without=LAYER_WISE, bytes="peak", reach=(0.05, 0.8), may_fill=("setup", *FIELDS)
)


class TestContest(ModuleTests):
    lab = CONTEST
