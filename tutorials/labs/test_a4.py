"""Lab A4, an allocator against fragmentation: pytest tutorials/labs/test_a4.py --submission my_modules.py"""

from refimpl.combined.fixed import FixedAddresses
from refimpl.names.presets import vdnn_conv
from tutorials.labs.cases import Lab
from tutorials.labs.checks import ModuleTests

VDNN = vdnn_conv.setup


class TestAllocator(ModuleTests):
    paper = VDNN.replace(name="best fit")
    worst, least = VDNN.replace(allocator="worst-fit"), VDNN.replace(allocator=FixedAddresses())
    lab = Lab("A4", ("allocator",), VDNN, paper, without=worst, bytes="peak", reach=(0.0, 0.8), least=least, near=2.0)
