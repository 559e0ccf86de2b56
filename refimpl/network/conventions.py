"""The choices by which the published systems' versions of one network differ.

They belong to the network and not to a memory policy; figures compare only on the same network.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Conventions:
    """The defaults are those of vDNN, whose networks are the models of convnet-benchmarks."""

    #: A ReLU overwrites its input where no other layer needs it; otherwise it has a map of its own.
    relu_in_place: bool = True
    #: A map read by several layers is copied by a fork layer, one copy a reader; otherwise they all read the one map,
    #: and its gradient is summed as their backward steps come.
    fork_layers: bool = False
    #: The input batch is a map like any other: released after its last use, uploaded again for backward.
    input_managed: bool = True
    #: The gradient of the input batch is computed too, although no step needs it.
    input_gradient: bool = False
    #: Backward has a depth-first route of its own; otherwise it is the forward route reversed.
    backward_depth_first: bool = False
    #: ReLU, LRN and softmax hold their input until backward, and LRN its output too, as cuDNN's functions read them;
    #: ours do without.
    holds_inputs: bool = False
    #: A ReLU after a convolution or a fully connected layer is part of that layer, and no layer of its own.
    relu_fused: bool = False
    #: Softmax overwrites its input.
    softmax_in_place: bool = False
    #: A convolution or a fully connected layer holds its output until its backward is over.
    holds_outputs: bool = False
    #: The gradients of weights are allocated just before their layer's backward and freed after it, as maps are.
    weight_gradients_managed: bool = False
    #: In the static baseline all gradient maps take turns in two buffers; otherwise each has memory of its own.
    two_gradient_buffers: bool = True
    #: Layers are PyTorch's operators (`refimpl.network.operation`), in the order of a module's calls: the batch stays,
    #: the baseline, too, frees what no later step reads, and the optimiser's calls come after all gradients.
    as_pytorch: bool = False
    #: Words of `refimpl.network.lean`: what no paper has, and needs less memory.
    lean: tuple[str, ...] = ()
    #: Height and width of the images of networks that have no size of their own.
    side: int = 224
    #: The large networks have the dropout layers of their papers.
    dropout: bool = False


VDNN = Conventions()

#: SuperNeurons §3: forks are layers, every layer has a map of its own, the input is resident; 227² images.
SUPERNEURONS = Conventions(
    relu_in_place=False,
    fork_layers=True,
    input_managed=False,
    input_gradient=True,
    backward_depth_first=True,
    holds_inputs=True,
    two_gradient_buffers=False,
    side=227,
    dropout=True,
)

#: The public code of vDNN++'s authors: chains with fused ReLUs, and everything in the pool but the weights.
VDNNPP = Conventions(relu_fused=True, softmax_in_place=True, holds_outputs=True, weight_gradients_managed=True)

#: What PyTorch keeps: nothing of ours, all that autograd saves.
PYTORCH = Conventions(
    relu_in_place=False,
    input_managed=False,
    weight_gradients_managed=True,
    two_gradient_buffers=False,
    as_pytorch=True,
)

#: The suffix of a network's name → the conventions it is built with.
SUFFIXES = {":superneurons": SUPERNEURONS, ":vdnnpp": VDNNPP}
