"""The networks that have a name: those the papers were measured on, and small ones for teaching and testing.

    build("vgg16", batch=256)    build("resnet:2498")    build("alexnet:superneurons")    resnet(50, batch=32)
    build("my_model.onnx")    from_onnx("my_model.onnx", batch=64)    from_torch(module, (64, 3, 224, 224))

With `:vdnnpp` a network is built as in vDNN++'s public code: ReLUs fused, weights' gradients in the pool.  With
`:superneurons` it is built with SuperNeurons' conventions: fork layers, a map of its own for every ReLU,
a resident input of 227², dropout where its paper has it.  After any name come words of `refimpl.network.lean`: with
`:positions` max pooling is by position, with `:lean` a network has all that it can have.
Its figures compare only with figures of the same network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from kernels.targets.collector import collector_paused
from refimpl.names import imported_from
from refimpl.network.conventions import SUFFIXES, SUPERNEURONS, VDNNPP, Conventions
from refimpl.network.layer import NetworkError
from refimpl.network.network import Network
from refimpl.text import closest

ALIASES = {"vgg-a": "vgg11", "inception-v4": "inceptionv4"}


@dataclass(frozen=True)
class Recipe:
    """How a named network is built: where its builder is, the default number of images, and one line about it."""

    where: str
    batch: int
    about: str
    options: tuple[tuple[str, Any], ...] = ()  #: of the builder

    @property
    def make(self) -> Callable[..., Network]:
        """The builder: `make(batch=…)`."""
        return partial(imported_from(self.where), **dict(self.options))


PLAIN = {
    "alexnet": Recipe("zoo.alexnet:alexnet", 128, "AlexNet in one tower (One Weird Trick), 224²"),
    "overfeat": Recipe("zoo.alexnet:overfeat", 128, "OverFeat, the fast model, 231²"),
    "googlenet": Recipe("zoo.googlenet:googlenet", 128, "GoogLeNet v1 without its two auxiliary ends"),
    "vgg11": Recipe("zoo.vgg:vgg11", 64, "VGG, model A"),
    "vgg16": Recipe("zoo.vgg:vgg16", 256, "VGG, model D"),
    "vgg19": Recipe("zoo.vgg:vgg19", 64, "VGG, model E"),
    "vgg116": Recipe("zoo.vgg:vgg116", 32, "VGG-16 and 20 convolutions more a group"),
    "vgg216": Recipe("zoo.vgg:vgg216", 32, "VGG-16 and 40 convolutions more a group"),
    "vgg316": Recipe("zoo.vgg:vgg316", 32, "VGG-16 and 60 convolutions more a group"),
    "vgg416": Recipe("zoo.vgg:vgg416", 32, "VGG-16 and 80 convolutions more a group"),
    "resnet50": Recipe("zoo.resnet:resnet50", 32, "ResNet-50, bottleneck units"),
    "resnet101": Recipe("zoo.resnet:resnet101", 32, "ResNet-101"),
    "resnet152": Recipe("zoo.resnet:resnet152", 32, "ResNet-152"),
    "inceptionv4": Recipe("zoo.inceptionv4:inceptionv4", 32, "Inception-v4, 299²"),
    "lenet": Recipe("network.small:lenet", 32, "for teaching: a chain with pooling and dropout, 1×28²"),
    "tiny-vgg": Recipe("network.small:tiny_vgg", 32, "for teaching: pairs of convolutions, 3×32²"),
    "tiny-resnet": Recipe(
        "network.small:tiny_resnet", 32, "for teaching: residual units with batch normalisation, 3×32²"
    ),
    "tiny-inception": Recipe("network.small:tiny_inception", 32, "for teaching: branches that meet in a concat, 3×32²"),
    "vdnnpp-demo": Recipe(
        "zoo.vdnnpp_demo:vdnnpp_demo", 32, "vDNN++'s demonstration: 1×1 and 5×5 convolutions in turn, 224²"
    ),
}


#: Networks that none of the published systems built: they have one version each.
LATER = {
    "mobilenet-v3-small": Recipe(
        "zoo.gated:mobilenet_v3_small", 128, "MobileNetV3, the small one: channels with gates"
    ),
    "efficientnet-b0": Recipe("zoo.gated:efficientnet_b0", 64, "EfficientNet B0: channels with gates, SiLU"),
    "regnet-y-400mf": Recipe("zoo.regnet:regnet_y_400mf", 128, "RegNet Y of 400 MF: groups of channels, with gates"),
    "convnext-tiny": Recipe("zoo.convnext:convnext_tiny", 64, "ConvNeXt-T: depthwise 7×7, layer normalisation, GELU"),
    "shufflenet-v2": Recipe(
        "zoo.shufflenet:shufflenet_v2", 128, "ShuffleNet v2, 1×: channels that are split and shuffled"
    ),
    "unet": Recipe("zoo.segmentation:unet", 16, "U-Net, padded and normalised, a class a pixel of 3×256²"),
    "fcn-resnet50": Recipe(
        "zoo.segmentation:fcn_resnet50", 16, "fully convolutional ResNet-50, a class a pixel of 3×256²"
    ),
    "vit-b16": Recipe("zoo.transformers:vit_b16", 64, "ViT-B/16: attention over patches of 16², 224²"),
    "gpt2": Recipe("zoo.transformers:gpt2", 8, "GPT-2, 124M parameters: the next of 50,257 words, windows of 1,024"),
    "gpt2-medium": Recipe("zoo.transformers:gpt2_medium", 8, "GPT-2, 355M parameters"),
    "gpt2-xl": Recipe("zoo.transformers:gpt2_xl", 4, "GPT-2, 1,558M parameters"),
    "bert-base": Recipe("zoo.transformers:bert_base", 16, "BERT, 110M parameters: masked words, windows of 512"),
    "llama3-1b": Recipe(
        "zoo.transformers:llama3_1b", 1, "Llama 3.2, 1,236M parameters: grouped queries, SwiGLU, windows of 2,048"
    ),
    "tiny-se": Recipe("zoo.gated:tiny_se", 32, "for teaching: channels with gates (squeeze and excitation), 3×32²"),
    "tiny-convnext": Recipe(
        "zoo.convnext:tiny_convnext", 32, "for teaching: layer normalisation, GELU, dropped branches, 3×32²"
    ),
    "tiny-unet": Recipe(
        "zoo.segmentation:tiny_unet", 32, "for teaching: maps that shrink and grow again, a class a pixel of 3×32²"
    ),
    "tiny-vit": Recipe("zoo.transformers:tiny_vit", 32, "for teaching: attention over patches, 3×32²"),
    "tiny-gpt": Recipe("zoo.transformers:tiny_gpt", 16, "for teaching: the next byte of a text, windows of 64"),
    "tiny-bert": Recipe("zoo.transformers:tiny_bert", 16, "for teaching: masked bytes of a text, windows of 64"),
    "tiny-llama": Recipe(
        "zoo.transformers:tiny_llama", 16, "for teaching: the next byte, with Llama's layers, windows of 64"
    ),
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
        Recipe("zoo.alexnet:alexnet_superneurons", 200, "AlexNet as SuperNeurons built it, with LRN and dropout, 227²"),
    ),
    ":vdnnpp": AsBuilt(
        VDNNPP, 16, "vDNN++'s conventions",
        Recipe("zoo.alexnet:alexnet_vdnnpp", 128, "AlexNet as vDNN++'s public code has it, ReLUs fused, 227²"),
    ),
}  # fmt: skip


def _as_built(name: str, plain: Recipe, suffix: str) -> Recipe:
    conventions, batch, whose, own = AS_BUILT[suffix]
    if name == "alexnet":
        return own
    about = f"{plain.about}; {whose}"
    return Recipe(plain.where, min(plain.batch, batch), about, (("conventions", conventions),))


OWN_CONVENTIONS = ("vdnnpp-demo", *LATER)  #: there is only one of these

#: Every name of one network.
NETWORKS = PLAIN | {
    name + suffix: _as_built(name, recipe, suffix)
    for suffix in AS_BUILT
    for name, recipe in PLAIN.items()
    if name not in OWN_CONVENTIONS
}

_DEEP = Recipe("zoo.resnet:resnet", 16, "SuperNeurons' deep family, DEPTH = 134 + 3n, n from 1; also 50, 101, 152")

#: Names with a depth in them: `make(DEPTH, batch=…)`.
FAMILIES = {"resnet:DEPTH": _DEEP} | {
    f"resnet:DEPTH{suffix}": _as_built("resnet:DEPTH", _DEEP, suffix) for suffix in AS_BUILT
}


#: A builder's name → where it is: `refimpl.networks.vgg16`.
BUILDERS = {
    recipe.where.partition(":")[2]: recipe.where
    for recipe in (*NETWORKS.values(), *FAMILIES.values(), Recipe("zoo.vgg:vgg", 64, ""))
} | {name: f"importing:{name}" for name in ("from_onnx", "from_torch")}


def __getattr__(name: str) -> Any:
    if name in BUILDERS:
        return imported_from(BUILDERS[name])
    raise AttributeError(f"there is no network {name!r}; there are {', '.join(sorted(BUILDERS))}")


def __dir__() -> list[str]:
    return [*BUILDERS, "FAMILIES", "NETWORKS", "Recipe", "build"]


def build(name: str, batch: int | None = None) -> Network:
    """The network of that name for `batch` images (None: as many as its paper measured it with).

    A name may be a file's, as in my_model.onnx, my_model.onnx:NODE or my_networks.py:make (None: 32 images).
    """
    if ":" in name:
        from refimpl.network import lean

        stem, words = lean.split(name)
        if words:
            return build(stem, batch).leaner(*words)
    if ".onnx" in name.lower() or ".py" in name.lower():
        from refimpl.importing import from_file

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
        return replace(deep, options=(("depth", int(depth)), *deep.options))
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
