"""The named networks: parameters as published, shapes as PyTorch has them, sizes as the papers print them, names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from refimpl.names.networks import FAMILIES, NETWORKS, build, unet
from refimpl.network import Layer, NetworkError
from refimpl.zoo.googlenet import MODULES
from tests.matrix import some
from tests.messages import raises_naming
from tests.refimpl.importing.described_networks import NAMES, TABLE, described

PUBLISHED = {
    # torchvision's models of these names have just as many, weights and biases and batch normalisations together
    "alexnet": 61_100_840, "vgg11": 132_863_336, "vgg16": 138_357_544, "vgg19": 143_667_240,
    "resnet50": 25_557_032, "resnet101": 44_549_160, "resnet152": 60_192_808,
    "inceptionv4": 42_679_816,  # timm's
    "googlenet": 6_998_552,  # Caffe's, without its auxiliary ends
    "mobilenet-v3-small": 2_542_856, "efficientnet-b0": 5_288_548,  # torchvision's
    "fcn-resnet50": 35_322_218 - 2_365_205,  # torchvision's, without its auxiliary end
    "convnext-tiny": 28_589_128, "shufflenet-v2": 2_278_604, "regnet-y-400mf": 4_344_144,
    "vit-b16": 86_567_656,  # torchvision's
    # Hugging Face's transformers, whose models of these sizes have the released weights, tied weights counted once:
    "gpt2": 124_439_808, "gpt2-medium": 354_823_168, "gpt2-xl": 1_557_611_200,
    "bert-base": 109_514_298 - 2 * 768,  # BertForMaskedLM of bert-base-uncased, without the types of its two segments
    "llama3-1b": 1_235_814_400,
}  # fmt: skip


#: Only longer than others.
DEEPEST = ("vgg116", "resnet101", "vgg216", "vgg316", "vgg416", "resnet152", "gpt2-medium", "gpt2-xl")


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_the_published_ones(name: str) -> None:
    assert build(name, 1).parameter_count == PUBLISHED[name]
    if name in ("vgg16", "googlenet", "inceptionv4"):  # VGG pools 227² to the same 7² as 224²
        assert build(f"{name}:superneurons", 1).parameter_count == PUBLISHED[name]


def test_the_u_net_is_as_large_as_the_one_that_is_used_most() -> None:
    """github.com/milesial/Pytorch-UNet, with one class and transposed convolutions."""
    assert unet(1, classes=1).parameter_count == 31_037_633


@pytest.mark.parametrize("name", [name for name in NETWORKS if ":" not in name and name not in DEEPEST])
def test_shapes_are_those_of_pytorch(name: str, torch: Any) -> None:
    """Its operators on its device "meta", which computes nothing but shapes."""
    network = build(name, 2)
    maps: dict[Layer, Any] = {}
    dtype = torch.int32 if network.input.dtype == "int32" else torch.float32
    batch = torch.empty(network.input.shape, dtype=dtype, device="meta")
    tensors = [t for layer in network.layers for t in layer.statistics.values()]
    tensors += [parameter.weight for _, _, parameter in network.parameters()]
    state = {tensor.name: torch.empty(tensor.shape, device="meta") for tensor in tensors}
    for layer in network.layers:
        inputs = [maps.get(producer, batch) for producer in layer.producers]
        maps[layer] = put_out(torch, layer, inputs, state)
        assert tuple(maps[layer].shape) == layer.shape == layer.y.shape, layer


def put_out(torch: Any, layer: Layer, inputs: list[Any], state: Mapping[str, Any]) -> Any:
    from refimpl.studies.bench.pytorch_twins import by_torch

    x, options, functional = inputs[0], layer.options, torch.nn.functional
    if layer.kind == "pool" and "window" in options:
        pool = functional.max_pool2d if options["mode"] == "max" else functional.avg_pool2d
        return pool(x, options["window"], options["stride"], options["pad"], ceil_mode=options["ceil"])
    return by_torch(layer, inputs, state)


def test_sizes_on_the_way() -> None:
    """Where the papers print them."""
    googlenet = build("googlenet", 1)
    channels = {name: googlenet.layer(f"{name}.concat").shape[1] for name in MODULES}
    assert list(channels.values()) == [256, 480, 512, 512, 512, 528, 832, 832, 1024]
    assert googlenet.layer("5b.concat").shape == (1, 1024, 7, 7)
    inception = build("inceptionv4", 1)
    ends = {"stem.c": (384, 35, 35), "A4": (384, 35, 35), "A.reduction": (1024, 17, 17), "B7": (1024, 17, 17),
            "B.reduction": (1536, 8, 8), "C3": (1536, 8, 8)}  # fmt: skip
    assert {name: inception.layer(f"{name}.concat").shape[1:] for name in ends} == ends
    for name in ("resnet50", "resnet50:superneurons"):
        groups = [build(name, 1).layer(f"{group}_1.relu").shape for group in (2, 3, 4, 5)]
        assert groups == [(1, 256, 56, 56), (1, 512, 28, 28), (1, 1024, 14, 14), (1, 2048, 7, 7)]
    kinds = {layer.kind for name in ("vgg16", "alexnet", "overfeat", "googlenet") for layer in build(name, 1).layers}
    assert not kinds & {"lrn", "dropout", "batchnorm"}


@pytest.mark.parametrize("name", some(NAMES, *(name for name in NAMES if name.partition(":")[0] not in DEEPEST)))
def test_nothing_of_a_network_has_changed_unnoticed(name: str) -> None:
    """Published figures are compared with these very networks; described_networks.py writes the table again."""
    found = described(build(name))
    assert f"\n{found}\n" in f"\n{TABLE.read_text(encoding='utf-8')}"
    assert found.startswith(f"{name}  "), "its own name"


def test_other_spellings() -> None:
    for spelling, name in (
        ("VGG16", "vgg16"), ("vgg-a", "vgg11"), ("Inception-v4:superneurons", "inceptionv4:superneurons"),
        ("tiny_vgg", "tiny-vgg"), ("resnet:50", "resnet50"), ("resnet:101:superneurons", "resnet101:superneurons"),
    ):  # fmt: skip
        assert build(spelling, 1).name == name
    assert all(recipe.about and recipe.batch > 0 for recipe in (*NETWORKS.values(), *FAMILIES.values()))


WRONG = {
    "vgg17": ("vgg17", "vgg11", "vgg16", "vgg19", "vgg416"),
    "vgg16:superneuron": ("vgg16:superneuron", "vgg16:superneurons"),
    "resnet51": ("resnet51", "resnet50", "resnet101", "resnet152", "resnet:DEPTH"),
    "transformer!": ("'transformer!'", "alexnet", "overfeat"),
    "resnet:deep": ("resnet:deep", "resnet:137"),
    "resnet:2500": (2500, 2498, 2501),
    "resnet:134": (134, 137, 140),
}


@pytest.mark.parametrize("name", WRONG)
def test_unknown_names_are_one_line(name: str) -> None:
    with raises_naming(NetworkError, *WRONG[name]):
        build(name)


@pytest.mark.parametrize("batch", [0, -1, 2.5, "many"])
def test_a_batch_that_cannot_be_is_one_line(batch: Any) -> None:
    for name in ("vgg16", "alexnet:superneurons", "resnet:137", "lenet"):
        with pytest.raises(NetworkError) as caught:
            build(name, batch)
        assert str(caught.value) == f"{name}: the batch is {batch!r}; give a whole number of at least 1"
