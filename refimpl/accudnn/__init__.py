"""AccUDNN: a GPU memory efficient accelerator for training deep networks, Guo, Liu, Wang, Lu, Hu, Han, Li, 2019.

Only the paper's abstracts could be read.  They say that a performance model guides, dynamically, which data is swapped;
that trainability comes first, and efficiency is remedied then; that a tuner follows, which looks for the minibatch that
is most efficient and the learning rate that matches it.  Everything else here is our reconstruction, and says so (R).

| module | what it does |
| --- | --- |
| `performance_model` | time and memory of one iteration, step by step |
| `choice` | which maps leave, which workspaces shrink |
| `schedule` | when each map is prefetched; a quick simulation of both |
| `carried_out` | the modules of the slots offload, prefetch and algorithms |
| `dynamic` | what the model chooses is planned; the fastest program is adopted |
| `tuner` | the most efficient batch, and the learning rate for it; `refimpl.studies.tune.tuning` plans what it needs |

The modules work beside the other papers' modules too.
"""

from refimpl.accudnn.carried_out import Capped, Everything, Late, ModelGuided
from refimpl.accudnn.choice import RANKS, Decision, choose, needed
from refimpl.accudnn.dynamic import ACCUDNN, AccUDNN
from refimpl.accudnn.performance_model import Candidate, Model
from refimpl.accudnn.schedule import Simulated, late, scheduled, simulate, triggers, with_room

__all__ = [
    "ACCUDNN", "RANKS", "AccUDNN", "Candidate", "Capped", "Decision", "Everything", "Late", "Model", "ModelGuided",
    "Simulated", "choose", "late", "needed", "scheduled", "simulate", "triggers", "with_room",
]  # fmt: skip
