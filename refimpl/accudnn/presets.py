"""AccUDNN's setup: the policy, with the modules of its most frugal candidate."""

from __future__ import annotations

from refimpl.accudnn.modules import Everything
from refimpl.accudnn.policy import AccUDNN
from refimpl.planner.baseline import LayerWise, MemoryOptimal

ACCUDNN = AccUDNN(
    "accudnn",
    offload=Everything(),
    liveness=LayerWise(),
    algorithms=MemoryOptimal(),
    least="everything (least)",
    instead="take another preset with offload=accudnn-model and prefetch=accudnn-late",
)
