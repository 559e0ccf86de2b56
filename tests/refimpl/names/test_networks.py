"""The named networks: parameters as published, shapes as PyTorch has them, sizes as the papers print them, names."""

from __future__ import annotations

import csv
import inspect
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import pytest

from refimpl.names.networks import (
    FAMILIES,
    LATER,
    NETWORKS,
    PLAIN,
    build,
    lenet,
    resnet,
    tiny_gpt,
    tiny_inception,
    tiny_resnet,
    tiny_vgg,
    unet,
    vgg,
)
from refimpl.network import Layer, NetworkError
from refimpl.studies.bench.pytorch import by_torch
from refimpl.zoo.googlenet import MODULES
from tests.counted_lines import lines_run
from tests.messages import raises_naming
from tests.refimpl.importing.described_networks import MADE, NAMES, TABLE, described

GOLDEN = Path(__file__).parents[2] / "data" / "superneurons_alexnet200.csv"
MIB = 2**20

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


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_the_published_ones(name: str) -> None:
    assert build(name, 1).parameter_count == PUBLISHED[name]
    if name not in ("alexnet", *LATER):  # another network; and VGG pools 227² to the same 7² as 224²
        assert build(f"{name}:superneurons", 1).parameter_count == PUBLISHED[name]


def parameters(*layers: tuple[int, int]) -> int:
    """Of (outputs, inputs) each, with a bias an output."""
    return sum(outputs * (inputs + 1) for outputs, inputs in layers)


def test_the_u_net_is_as_large_as_the_one_that_is_used_most() -> None:
    """github.com/milesial/Pytorch-UNet, with one class and transposed convolutions."""
    assert unet(1, classes=1).parameter_count == 31_037_633


@pytest.mark.slow
def test_parameters_of_variants_add_up() -> None:
    alexnet = parameters(
        (96, 3 * 121), (256, 96 * 25), (384, 256 * 9), (384, 384 * 9), (256, 384 * 9), (4096, 256 * 36), (4096, 4096),
        (1000, 4096),
    )  # fmt: skip
    assert build("alexnet:superneurons", 1).parameter_count == alexnet
    overfeat = parameters(
        (96, 3 * 121), (256, 96 * 25), (512, 256 * 9), (1024, 512 * 9), (1024, 1024 * 9), (3072, 1024 * 36),
        (4096, 3072), (1000, 4096),
    )  # fmt: skip
    assert build("overfeat", 1).parameter_count == overfeat
    one_more_a_group = parameters(*((filters, 9 * filters) for filters in (64, 128, 256, 512, 512)))
    for times, name in enumerate(("vgg116", "vgg216", "vgg316", "vgg416"), 1):
        added = 20 * times * one_more_a_group
        network = build(name, 1)
        assert network.parameter_count == PUBLISHED["vgg16"] + added
        assert sum(bool(layer.parameters) for layer in network.layers) == 16 + 100 * times
    deep = resnet(2498, 1)
    assert sum(layer.kind in ("conv", "fc") and ".around" not in layer.name for layer in deep.layers) == 2498


@pytest.mark.parametrize("name", NETWORKS)
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


def test_the_golden_alexnet() -> None:
    """Every step's live bytes and tensors, each tensor from its first step to its last, as SuperNeurons published."""
    network = build("alexnet:superneurons")
    assert (network.batch, network.depth, len(network.managed)) == (200, 23, 36)
    assert f"{network.managed_bytes / MIB:.3f}" == "2189.437"
    last = {tensor: step.number for step in network.steps for tensor in step.uses}
    live: set[Any] = set()
    peaks = []
    for step, row in zip(network.steps, csv.DictReader(GOLDEN.open(encoding="utf-8")), strict=True):
        live.update(step.writes)
        now = sum(tensor.nbytes for tensor in live) / MIB
        assert (str(step.number), step.direction, step.layer.name) == (row["step"], row["direction"], row["layer"])
        assert (now, len(live)) == (pytest.approx(float(row["liveness_mib"]), abs=0.02), int(row["liveness_tensors"]))
        peaks.append((now, step.number))
        live = {tensor for tensor in live if last[tensor] > step.number}
    assert not live and max(peaks)[1] == 32


def test_default_batches() -> None:
    for name, batch in (("alexnet", 128), ("vgg16", 256), ("vgg416", 32), ("alexnet:superneurons", 200)):
        assert build(name).batch == batch
    assert build("resnet:137").batch == 16 and build("vgg16", batch=64).batch == 64


@pytest.mark.parametrize("name", PLAIN)
def test_a_network_s_function_has_the_batch_of_its_name(name: str) -> None:
    assert inspect.signature(PLAIN[name].make).parameters["batch"].default == PLAIN[name].batch


@pytest.mark.parametrize("name", NAMES)
def test_nothing_of_a_network_has_changed_unnoticed(name: str) -> None:
    """Published figures are compared with these very networks; described_networks.py writes the table again."""
    found = described(build(name))
    assert f"\n{found}\n" in f"\n{TABLE.read_text(encoding='utf-8')}"
    assert found.startswith(f"{name}  "), "its own name"


@pytest.mark.parametrize("name", MADE)
def test_nothing_of_a_made_network_has_changed_unnoticed(name: str) -> None:
    found = described(MADE[name]())
    assert f"\n{found}\n" in f"\n{TABLE.read_text(encoding='utf-8')}"


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
    "resnet": ("resnet", "resnet50"),
    "resnet51": ("resnet51", "resnet50", "resnet101", "resnet152", "resnet:DEPTH"),
    "": ("''", "alexnet", "overfeat"),
    "transformer!": ("'transformer!'", "alexnet", "overfeat"),
    "resnet:deep": ("resnet:deep", "resnet:137"),
    "resnet:-50": ("resnet:-50", "resnet:137"),
    "resnet:2500": (2500, 2498, 2501),
    "resnet:7:superneurons": (7, 50),
    "resnet:134": (134, 137, 140),
}


@pytest.mark.parametrize("name", WRONG)
def test_unknown_names_are_one_line(name: str) -> None:
    with raises_naming(NetworkError, *WRONG[name]):
        build(name)


def test_depths_between_the_standard_ones() -> None:
    for depth, nearest in ((49, "50 and 101"), (120, "101 and 137"), (151, "149 and 152"), (153, "152 and 155")):
        with raises_naming(NetworkError, nearest):
            resnet(depth)
    with raises_naming(NetworkError, "VGG", 13, "11", "16", "19", 116):
        vgg(13)


@pytest.mark.parametrize("batch", [0, -1, 2.5, "many"])
def test_a_batch_that_cannot_be_is_one_line(batch: Any) -> None:
    for name in ("vgg16", "alexnet:superneurons", "resnet:137", "lenet"):
        with pytest.raises(NetworkError) as caught:
            build(name, batch)
        assert str(caught.value) == f"{name}: the batch is {batch!r}; give a whole number of at least 1"


@pytest.mark.parametrize("make", [lenet, tiny_vgg, tiny_resnet, tiny_inception])
def test_the_small_ones_take_other_images(make: Any) -> None:
    network = make(batch=4, shape=(1, 8, 8), classes=10)
    assert network.input.shape == (4, 1, 8, 8) and network.predictions.shape == (4, 10)
    assert make(shape=(3, 32, 32), classes=7).predictions.shape[1] == 7


def test_the_small_ones_by_default() -> None:
    """Parameters and the shape of the images, by hand; a batch normalisation has two for each channel."""
    for network, images, count in (
        (lenet(), (1, 28, 28), parameters((16, 25), (32, 16 * 25), (128, 32 * 49), (10, 128))),
        (
            tiny_vgg(), (3, 32, 32),
            parameters(
                (8, 27), (8, 8 * 9), (16, 8 * 9), (16, 16 * 9), (32, 16 * 9), (32, 32 * 9), (64, 32 * 16), (10, 64)
            ),
        ),
        (
            tiny_resnet(), (3, 32, 32),
            8 * 27 + 4 * 8 * 72 + 16 * 8 + 16 * 72 + 3 * 16 * 144 + 2 * (5 * 8 + 5 * 16) + parameters((10, 16)),
        ),
        (
            tiny_inception(), (3, 32, 32),
            parameters(
                (8, 27),
                (8, 8), (4, 8), (8, 4 * 9), (4, 8),  # of 8 channels: 1×1, before 3×3, 3×3, after the pooling
                (16, 20), (8, 20), (16, 8 * 9), (8, 20),  # of the 8 + 8 + 4 that are put together
                (10, 16 + 16 + 8),
            ),
        ),
    ):  # fmt: skip
        assert (network.input.shape, network.predictions.shape) == ((32, *images), (32, 10)), network.name
        assert network.parameter_count == count, network.name
        assert build(network.name).input.shape == network.input.shape


def test_the_small_ones_cover_every_kind() -> None:
    small = (network for make in (lenet, tiny_vgg, tiny_resnet, tiny_inception) for network in (make(batch=1),))
    kinds = {layer.kind for network in small for layer in network.layers}
    assert kinds == {"conv", "pool", "fc", "relu", "batchnorm", "dropout", "softmax", "concat", "join"}


def test_the_work_to_build_a_network_grows_with_its_depth() -> None:
    few, many = (lines_run(resnet, depth, 1) / len(resnet(depth, 1).layers) for depth in (50, 497))
    assert many < 1.2 * few


def test_bytes_follow_from_shapes() -> None:
    network = build("vgg16", 256)
    assert network.layer("conv1_1").y.nbytes == 4 * prod((256, 64, 224, 224)) == 3_288_334_336


# -- as vDNN++'s authors built them ------------------------------------------------------------------------------------


#: Only longer than others.
DEEPEST = ("vgg116", "vgg216", "vgg316", "vgg416", "resnet101", "resnet152")
AS_VDNNPP = [name for name in NETWORKS if name.endswith(":vdnnpp") and name.removesuffix(":vdnnpp") not in DEEPEST]


@pytest.mark.vdnnpp
@pytest.mark.parametrize("name", [*AS_VDNNPP, "vdnnpp-demo"])
def test_vdnnpps_networks_fuse_their_relus_and_learn_the_same(name: str) -> None:
    network = build(name, 1)
    for layer in network.layers:
        producer = layer.producers[0]
        alone = producer.kind in ("conv", "fc") and len(producer.consumers) == 1
        assert not (layer.kind == "relu" and alone), f"{layer} could be part of {producer}"
    assert any(layer.has_relu for layer in network.layers) or "resnet" in name or "inceptionv4" in name
    assert all(parameter.gradient.managed for _, _, parameter in network.parameters())
    plain = name.removesuffix(":vdnnpp")
    if name not in ("alexnet:vdnnpp", "vdnnpp-demo"):
        assert network.parameter_count == build(plain, 1).parameter_count
        assert network.flops == build(plain, 1).flops


@pytest.mark.vdnnpp
def test_vdnnpps_alexnet_and_its_demonstration() -> None:
    """Shapes: an input of 3×227², and the layers that it numbers 0 to 10; 224² all the way to the pool of the other."""
    alexnet = build("alexnet:vdnnpp")
    assert alexnet.input.shape == (128, 3, 227, 227)
    shapes = {layer.name: layer.shape[1:] for layer in alexnet.layers}
    assert [shapes[f"conv{i}"] for i in range(1, 6)] == [
        (96, 55, 55), (256, 27, 27), (384, 13, 13), (384, 13, 13), (256, 13, 13),
    ]  # fmt: skip
    assert [shapes[f"pool{i}"] for i in (1, 2, 5)] == [(96, 27, 27), (256, 13, 13), (256, 6, 6)]
    assert "".join(layer.kind[0] for layer in alexnet.layers) == "cpcpcccpfffs"
    assert [layer.has_relu for layer in alexnet.layers if layer.kind in ("conv", "fc")] == [True] * 7 + [False]
    demonstration = build("vdnnpp-demo")
    convs = [layer for layer in demonstration.layers if layer.kind == "conv"]
    assert [layer.options["window"][0] for layer in convs] == [3, *[1, 5] * 5, 1]
    assert {layer.shape[1:] for layer in convs[:-1]} == {(64, 224, 224)}
    assert [layer.shape[1:] for layer in demonstration.layers[-4:]] == [(64, 112, 112), (3, 112, 112), (2,), (2,)]


def test_stochastic_depth_grows_from_zero_in_efficientnet_and_is_nowhere_else() -> None:
    def shares(name: str) -> list[float]:
        return [layer.options["probability"] for layer in build(name, 1).layers if layer.kind == "drop_path"]

    found = shares("efficientnet-b0")
    assert found == sorted(found) and 0 < found[0] < 0.05 and 0.15 < found[-1] < 0.2
    assert not any(shares(name) for name in ("tiny-se", "mobilenet-v3-small", "shufflenet-v2"))


def test_attentions_probabilities_are_a_workspace_or_maps() -> None:
    with raises_naming(NetworkError, "most", "workspace", "maps"):
        tiny_gpt(probabilities="most")
    kinds = {layer.kind for layer in tiny_gpt(probabilities="maps").layers}
    assert {"scores", "mix"} <= kinds and "attention" not in kinds
