"""The optimiser's state on the host: momentum, or AdamW's two averages.

Between iterations every state is in a pinned buffer of its own.  It is copied in for the step that updates it
(`Step.states`), beside the step's other kernels, and copied out after the update, while the next states come.  So the
device holds the states of two or three layers, and the link carries all of them both ways in every iteration.  That
holds under every setup, the baseline included.

ZeRO-Offload (Ren et al., USENIX ATC 2021) keeps the states on the host, too, and makes the update there: gradients go
out, and weights come in.  Here the update stays on the device, by the same kernel, so no bit of training differs.

With clipping by norm, and where several ranks train together, all updates are in the last step: it needs all states.
"""

from __future__ import annotations

from refimpl.network import calls
from refimpl.network.network import Network

ABOUT = "the optimiser's states are on the host, and on the device while they are updated"
LACKS = "optimiser's state that could be on the host"


def applies(network: Network) -> bool:
    return any(parameter.states for _, _, parameter in network.parameters())


class StateOnHost(calls.Backward):
    """The usual calls; but the states that they update are managed tensors."""

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        network.on_host = [state for _, _, parameter in network.parameters() for state in parameter.states.values()]
        for state in network.on_host:
            state.managed = True
        network.resident = [tensor for tensor in network.resident if not tensor.managed]
        network.managed += network.on_host


BACKWARD = StateOnHost
