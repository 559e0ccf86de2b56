"""A weight's gradient lives while its layer's backward step runs.

The optimiser's call for a weight comes at the end of the step that has finished its gradient, so after it no call reads
the gradient.  Here it is a managed tensor, allocated for that step and freed after it; plain networks have all of them
resident.  The gradient of a weight that several layers share lives from the first of their backward steps to the last.
No call is added and none is changed, so no bit of training is either.

The public code of vDNN++'s authors does so, too: with the suffix `:vdnnpp` a network has it already.  vDNN counts all
gradients of weights among the bytes of training, and in SuperNeurons they stay and are never scheduled.

Clipping by norm needs all gradients at once, and several ranks average them in buckets: both are refused.
"""

from __future__ import annotations

from refimpl.network.network import Network

ABOUT = "a weight's gradient is in memory only while its layer's backward step runs"
LACKS = "weight gradient that could go earlier: clipping needs all of them at once, and with :vdnnpp they go already"


def applies(network: Network) -> bool:
    return network.learning.clip is None and not network.conventions.weight_gradients_managed
