"""Lab A5, an Offload and a Prefetch: pytest tutorials/labs/test_a5.py --submission my_modules.py"""

from refimpl.combined.carried_out import OnceDrained
from refimpl.combined.fixed import FixedAddresses
from refimpl.names.presets import vdnn_all
from tutorials.labs.cases import LAYER_WISE, Lab
from tutorials.labs.checks import ModuleTests

COUNTED = {"allocator": FixedAddresses(), "algorithms": OnceDrained()}  # bytes decide what fits, and not holes


class TestOffloadAndPrefetch(ModuleTests):
    base, paper = LAYER_WISE.replace(copy_streams="shared", **COUNTED), vdnn_all(**COUNTED).replace(name="vDNN")
    lab = Lab("A5", ("offload", "prefetch"), base, paper, without=base, bytes="moved", reach=(0.1, 0.7))
