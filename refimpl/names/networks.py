"""The networks that have a name: those the papers were measured on, and small ones for teaching and testing.

    build("vgg16", batch=256)    build("resnet:2498")    build("alexnet:superneurons")    resnet(50, batch=32)
    build("my_model.onnx")    from_onnx("my_model.onnx", batch=64)    from_torch(module, (64, 3, 224, 224))

With `:vdnnpp` a network is built as in vDNN++'s public code: ReLUs fused, weights' gradients in the pool.  With
`:superneurons` it is built with SuperNeurons' conventions: fork layers, a map of its own for every ReLU,
a resident input of 227², dropout where its paper has it.  Its figures compare only with figures of the same network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from kernels.targets.collector import collector_paused
from refimpl.importing import from_file, from_onnx, from_torch
from refimpl.network.conventions import SUFFIXES, SUPERNEURONS, VDNNPP, Conventions
from refimpl.network.layer import NetworkError
from refimpl.network.network import Network
from refimpl.network.small import lenet, tiny_inception, tiny_resnet, tiny_vgg
from refimpl.text import closest
from refimpl.zoo.alexnet import alexnet, alexnet_superneurons, alexnet_vdnnpp, overfeat
from refimpl.zoo.convnext import convnext_tiny, tiny_convnext
from refimpl.zoo.gated import efficientnet_b0, mobilenet_v3_small, tiny_se
from refimpl.zoo.googlenet import googlenet
from refimpl.zoo.inceptionv4 import inceptionv4
from refimpl.zoo.regnet import regnet_y_400mf
from refimpl.zoo.resnet import resnet, resnet50, resnet101, resnet152
from refimpl.zoo.segmentation import fcn_resnet50, tiny_unet, unet
from refimpl.zoo.shufflenet import shufflenet_v2
from refimpl.zoo.transformers import (
    bert_base,
    gpt2,
    gpt2_medium,
    gpt2_xl,
    llama3_1b,
    tiny_bert,
    tiny_gpt,
    tiny_llama,
    tiny_vit,
    vit_b16,
)
from refimpl.zoo.vdnnpp_demo import vdnnpp_demo
from refimpl.zoo.vgg import vgg, vgg11, vgg16, vgg19, vgg116, vgg216, vgg316, vgg416

__all__ = [
    "FAMILIES", "NETWORKS", "Recipe", "alexnet", "alexnet_superneurons", "alexnet_vdnnpp", "bert_base", "build",
    "convnext_tiny", "efficientnet_b0", "fcn_resnet50", "from_onnx", "from_torch", "googlenet", "gpt2", "gpt2_medium",
    "gpt2_xl", "inceptionv4", "lenet", "llama3_1b", "mobilenet_v3_small", "overfeat", "regnet_y_400mf", "resnet",
    "resnet50", "resnet101", "resnet152", "shufflenet_v2", "tiny_bert", "tiny_convnext", "tiny_gpt", "tiny_inception",
    "tiny_llama", "tiny_resnet", "tiny_se", "tiny_unet", "tiny_vgg", "tiny_vit", "unet", "vdnnpp_demo", "vgg",
    "vgg11", "vgg16", "vgg19", "vgg116", "vgg216", "vgg316", "vgg416", "vit_b16",
]  # fmt: skip

ALIASES = {"vgg-a": "vgg11", "inception-v4": "inceptionv4"}


@dataclass(frozen=True)
class Recipe:
    """How a named network is built: `make(batch=…)`; `batch`: the default number of images."""

    make: Callable[..., Network]
    batch: int
    about: str


PLAIN = {
    "alexnet": Recipe(alexnet, 128, "AlexNet in one tower (One Weird Trick), 224²"),
    "overfeat": Recipe(overfeat, 128, "OverFeat, the fast model, 231²"),
    "googlenet": Recipe(googlenet, 128, "GoogLeNet v1 without its two auxiliary ends"),
    "vgg11": Recipe(vgg11, 64, "VGG, model A"),
    "vgg16": Recipe(vgg16, 256, "VGG, model D"),
    "vgg19": Recipe(vgg19, 64, "VGG, model E"),
    "vgg116": Recipe(vgg116, 32, "VGG-16 and 20 convolutions more a group"),
    "vgg216": Recipe(vgg216, 32, "VGG-16 and 40 convolutions more a group"),
    "vgg316": Recipe(vgg316, 32, "VGG-16 and 60 convolutions more a group"),
    "vgg416": Recipe(vgg416, 32, "VGG-16 and 80 convolutions more a group"),
    "resnet50": Recipe(resnet50, 32, "ResNet-50, bottleneck units"),
    "resnet101": Recipe(resnet101, 32, "ResNet-101"),
    "resnet152": Recipe(resnet152, 32, "ResNet-152"),
    "inceptionv4": Recipe(inceptionv4, 32, "Inception-v4, 299²"),
    "lenet": Recipe(lenet, 32, "for teaching: a chain with pooling and dropout, 1×28²"),
    "tiny-vgg": Recipe(tiny_vgg, 32, "for teaching: pairs of convolutions, 3×32²"),
    "tiny-resnet": Recipe(tiny_resnet, 32, "for teaching: residual units with batch normalisation, 3×32²"),
    "tiny-inception": Recipe(tiny_inception, 32, "for teaching: branches that meet in a concat, 3×32²"),
    "vdnnpp-demo": Recipe(vdnnpp_demo, 32, "vDNN++'s demonstration: 1×1 and 5×5 convolutions in turn, 224²"),
}


#: Networks that none of the published systems built: they have one version each.
LATER = {
    "mobilenet-v3-small": Recipe(mobilenet_v3_small, 128, "MobileNetV3, the small one: channels with gates"),
    "efficientnet-b0": Recipe(efficientnet_b0, 64, "EfficientNet B0: channels with gates, SiLU"),
    "regnet-y-400mf": Recipe(regnet_y_400mf, 128, "RegNet Y of 400 MF: groups of channels, with gates"),
    "convnext-tiny": Recipe(convnext_tiny, 64, "ConvNeXt-T: depthwise 7×7, layer normalisation, GELU"),
    "shufflenet-v2": Recipe(shufflenet_v2, 128, "ShuffleNet v2, 1×: channels that are split and shuffled"),
    "unet": Recipe(unet, 16, "U-Net, padded and normalised, a class a pixel of 3×256²"),
    "fcn-resnet50": Recipe(fcn_resnet50, 16, "fully convolutional ResNet-50, a class a pixel of 3×256²"),
    "vit-b16": Recipe(vit_b16, 64, "ViT-B/16: attention over patches of 16², 224²"),
    "gpt2": Recipe(gpt2, 8, "GPT-2, 124M parameters: the next of 50,257 words, windows of 1,024"),
    "gpt2-medium": Recipe(gpt2_medium, 8, "GPT-2, 355M parameters"),
    "gpt2-xl": Recipe(gpt2_xl, 4, "GPT-2, 1,558M parameters"),
    "bert-base": Recipe(bert_base, 16, "BERT, 110M parameters: masked words, windows of 512"),
    "llama3-1b": Recipe(llama3_1b, 1, "Llama 3.2, 1,236M parameters: grouped queries, SwiGLU, windows of 2,048"),
    "tiny-se": Recipe(tiny_se, 32, "for teaching: channels with gates (squeeze and excitation), 3×32²"),
    "tiny-convnext": Recipe(tiny_convnext, 32, "for teaching: layer normalisation, GELU, dropped branches, 3×32²"),
    "tiny-unet": Recipe(tiny_unet, 32, "for teaching: maps that shrink and grow again, a class a pixel of 3×32²"),
    "tiny-vit": Recipe(tiny_vit, 32, "for teaching: attention over patches, 3×32²"),
    "tiny-gpt": Recipe(tiny_gpt, 16, "for teaching: the next byte of a text, windows of 64"),
    "tiny-bert": Recipe(tiny_bert, 16, "for teaching: masked bytes of a text, windows of 64"),
    "tiny-llama": Recipe(tiny_llama, 16, "for teaching: the next byte, with Llama's layers, windows of 64"),
}
PLAIN |= LATER


class AsBuilt(NamedTuple):
    """The networks with another system's conventions."""

    conventions: Conventions
    batch: int  #: images at most, where no batch is given
    whose: str
    alexnet: Recipe  #: its own, which it measured at its own batch


AS_BUILT = {
    ":superneurons": AsBuilt(
        SUPERNEURONS, 32, "SuperNeurons' conventions",
        Recipe(alexnet_superneurons, 200, "AlexNet as SuperNeurons built it, with LRN and dropout, 227²"),
    ),
    ":vdnnpp": AsBuilt(
        VDNNPP, 16, "vDNN++'s conventions",
        Recipe(alexnet_vdnnpp, 128, "AlexNet as vDNN++'s public code has it, ReLUs fused, 227²"),
    ),
}  # fmt: skip


def _as_built(name: str, plain: Recipe, suffix: str) -> Recipe:
    conventions, batch, whose, own = AS_BUILT[suffix]
    if name == "alexnet":
        return own
    make = partial(plain.make, conventions=conventions)
    return Recipe(make, min(plain.batch, batch), f"{plain.about}; {whose}")


OWN_CONVENTIONS = ("vdnnpp-demo", *LATER)  #: there is only one of these

#: Every name of one network.
NETWORKS = PLAIN | {
    name + suffix: _as_built(name, recipe, suffix)
    for suffix in AS_BUILT
    for name, recipe in PLAIN.items()
    if name not in OWN_CONVENTIONS
}

_DEEP = Recipe(resnet, 16, "SuperNeurons' deep family, DEPTH = 134 + 3n, n from 1; also 50, 101, 152")

#: Names with a depth in them: `make(DEPTH, batch=…)`.
FAMILIES = {"resnet:DEPTH": _DEEP} | {
    f"resnet:DEPTH{suffix}": _as_built("resnet:DEPTH", _DEEP, suffix) for suffix in AS_BUILT
}


def build(name: str, batch: int | None = None) -> Network:
    """The network of that name for `batch` images (None: as many as its paper measured it with).

    A name may be a file's, as in my_model.onnx, my_model.onnx:NODE or my_networks.py:make (None: 32 images).
    """
    if network := from_file(name, batch):
        return network
    recipe = _find(name)
    with collector_paused():  # a deep network is many small objects, and none of them is garbage
        return recipe.make(batch=recipe.batch if batch is None else batch)


def _find(name: str) -> Recipe:
    asked = name.strip().lower().replace("_", "-")
    suffix = next((suffix for suffix in SUFFIXES if asked.endswith(suffix)), "")
    plain = asked.removesuffix(suffix)
    plain = ALIASES.get(plain, plain)
    if plain.startswith("resnet:"):
        depth = plain.removeprefix("resnet:")
        if not depth.isdecimal() or len(depth) > 5:
            raise NetworkError(f"{name}: give a ResNet's depth as a whole number below 100,000, as in resnet:137")
        standard = f"resnet{depth}{suffix}"
        if standard in NETWORKS:
            return NETWORKS[standard]
        deep = FAMILIES["resnet:DEPTH" + suffix]
        return Recipe(partial(deep.make, int(depth)), deep.batch, deep.about)
    if plain + suffix in NETWORKS:
        return NETWORKS[plain + suffix]
    near = closest(asked, [*NETWORKS, *FAMILIES, *ALIASES])
    if near:
        raise NetworkError(f"there is no network {name!r}; did you mean {near}?")
    stem = plain.rstrip("0123456789")
    family = [known for known in (*PLAIN, "resnet:DEPTH") if known.startswith(stem) and stem != plain] if stem else []
    known = ", ".join(family or (*PLAIN, "resnet:DEPTH"))
    depths = f"; {_DEEP.about}" if "resnet:DEPTH" in family else ""
    raise NetworkError(
        f"there is no network {name!r}; there are {known}, also with {' or '.join(SUFFIXES)} after the name{depths}"
    )
