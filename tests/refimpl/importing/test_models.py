"""Models of torchvision and transformers: planned and proved, trained as PyTorch does, and held as it is predicted.

These campaigns ask again what the tables of `docs/torchvision.md`, `docs/any-module.md` and `docs/your-own-network.md`
say.  `-k NAME` asks one model; `-rP` prints what was found.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import refimpl
from refimpl.planner import DoesNotFit, Program

torch = pytest.importorskip("torch")

from tests.refimpl.importing.beside_pytorch import (  # noqa: E402
    beside_pytorch,
    described,
    exported,
    model,
    same_weights,
    torchvision_models,
)
from tests.refimpl.importing.test_any_module import crossing  # noqa: E402

POLICIES = ("vdnn-all", "vdnn-conv", "vdnn-dyn", "vdnnpp-all", "vdnnpp-conv", "superneurons", "accudnn", "combined")
#: Model → height and width of its images: the smallest that its poolings can share out; the cheap ones first.
MODELS = dict.fromkeys((
    "mobilenet_v3_small", "mobilenet_v3_large", "efficientnet_b0", "regnet_y_400mf", "convnext_tiny",
    "shufflenet_v2_x1_0", "squeezenet1_1", "mobilenet_v2", "mnasnet0_5", "resnet18", "densenet121", "googlenet",
    "resnext50_32x4d", "wide_resnet50_2", "resnet152",
), 64) | {"inception_v3": 107, "alexnet": 224, "vgg11": 224, "vgg19_bn": 224}  # fmt: skip
#: A model of each family, which is trained in a share of what its baseline needs.
TRAINED = (
    "squeezenet1_1", "mobilenet_v2", "mobilenet_v3_small", "shufflenet_v2_x1_0", "mnasnet0_5", "efficientnet_b0",
    "regnet_y_400mf", "resnet18", "googlenet", "densenet121", "convnext_tiny",
)  # fmt: skip
FRUGAL, BUDGET, BATCH, TOKENS = "superneurons, algorithms=memory", 0.6, 8, 64
#: Model of transformers → its configuration, and options where the default is a large model.
NARROW = {"hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 8, "intermediate_size": 1408}
LANGUAGE: Mapping[str, tuple[str, dict[str, Any]]] = {
    "T5Model": ("T5Config", {}), "GPT2LMHeadModel": ("GPT2Config", {}), "BertForMaskedLM": ("BertConfig", {}),
    "RobertaForMaskedLM": ("RobertaConfig", {}), "DistilBertForMaskedLM": ("DistilBertConfig", {}),
    "AlbertForMaskedLM": ("AlbertConfig", {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}),
    "ElectraForMaskedLM": ("ElectraConfig", {}), "OPTForCausalLM": ("OPTConfig", {}),
    "LlamaForCausalLM": ("LlamaConfig", NARROW),
    "MistralForCausalLM": ("MistralConfig", NARROW | {"num_key_value_heads": 2, "head_dim": 64}),
    "SwinForImageClassification": ("SwinConfig", {}), "ViTForImageClassification": ("ViTConfig", {}),
}  # fmt: skip


def classifiers() -> list[str]:
    """torchvision's, but for those with more than 300 million parameters."""
    try:
        torchvision_models()
        from torchvision.models import list_models
    except ImportError:
        return []
    giants = ("regnet_y_128gf", "vit_l_16", "vit_l_32", "vit_h_14")
    return [name for name in list_models(module=torchvision_models()) if name not in giants]


def with_inputs(name: str) -> tuple[Any, Any]:
    """A model, and its inputs."""
    torch.manual_seed(0)
    if name not in LANGUAGE:
        size = {"inception_v3": 96, "maxvit_t": 224}.get(name, 64)
        module = model(name, **({"image_size": size} if name.startswith("vit") else {}))
        return module, torch.randn(BATCH, 3, size, size)
    transformers = pytest.importorskip("transformers")
    configuration, options = LANGUAGE[name]
    config = getattr(transformers, configuration)(**options)
    config.use_cache = False
    if "Image" in name:
        given = {"pixel_values": torch.randn(BATCH, 3, 224, 224)}
    else:
        tokens = torch.randint(5, 1000, (BATCH, TOKENS))
        given = {"input_ids": tokens} | ({"decoder_input_ids": tokens.clone()} if name.startswith("T5") else {})
    return getattr(transformers, name)(config), given


def held_at_the_turn(module: Any, inputs: Any) -> int:
    """Bytes of the storages that autograd has saved after forward, but for parameters, buffers and inputs."""
    given = inputs if isinstance(inputs, dict) else {"": inputs}
    known = {one.untyped_storage().data_ptr() for one in (*given.values(), *module.parameters(), *module.buffers())}
    saved: dict[int, int] = {}

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        made = module.train()(**given) if isinstance(inputs, dict) else module.train()(inputs)
    del made
    return sum(saved.values())


@pytest.mark.campaign
@pytest.mark.parametrize("name", [*classifiers(), *LANGUAGE])
def test_every_policy_plans_it_as_pytorch_keeps_it_and_what_is_held_is_predicted(name: str) -> None:
    module, inputs = with_inputs(name)
    network = refimpl.networks.from_torch(module, inputs, keeps="pytorch-cpu")
    for policy in ("baseline", *POLICIES):
        refimpl.plan(network, policy, "titan-x", "12GiB").verify()
    held = held_at_the_turn(module, inputs)
    print(f"{name}: {crossing(network)} bytes predicted, {held} held")
    assert crossing(network) == pytest.approx(held, rel=0.01)


@pytest.mark.campaign
@pytest.mark.parametrize("name", MODELS)
def test_it_is_the_same_network_both_ways_and_computes_what_pytorch_does(name: str, tmp_path: Path) -> None:
    shape = (2 if MODELS[name] == 224 else 16, 3, MODELS[name], MODELS[name])
    module = model(name)
    file = exported(module, shape, tmp_path / "a.onnx")  # which moves the module's statistics
    beside = beside_pytorch(module, torch.randn(shape))
    network, parameters = beside.network, sum(one.numel() for one in module.parameters())
    print(f"| {name} | {len(network.layers)} | {parameters:,} | {beside.loss:.1e} | {beside.weight:.1e} |")
    assert beside.agrees and network.parameter_count == parameters, beside
    filed = refimpl.networks.from_onnx(file, batch=shape[0])
    assert same_weights(network, filed)
    if name != "inception_v3":  # the exporter makes one concatenation of two in Inception
        assert described(network) == described(filed)


def after_three_steps(program: Program) -> list[bytes]:
    """Everything that three iterations leave: weights, momenta and statistics."""
    program.verify()
    with refimpl.Trainer(program, "cpu") as trainer:
        for seed in range(3):
            random = np.random.default_rng(seed)
            images = random.standard_normal(program.network.input.shape, dtype=np.float32)
            trainer.step(images, random.integers(0, 10, program.network.batch).astype(np.int32))
        return [values.tobytes() for values in trainer.state().values()]


@pytest.mark.campaign
@pytest.mark.parametrize("name", TRAINED)
def test_it_trains_in_three_fifths_of_the_memory_to_the_baselines_bits(name: str, tmp_path: Path) -> None:
    """With the least of these batches whose maps are large enough, beside the weights, that the share can be kept."""
    for images in (16, 32, 64, 128):
        shape = (images, 3, MODELS[name], MODELS[name])
        module = model(name)
        exported(module, shape, tmp_path / "a.onnx")
        networks = [
            refimpl.networks.from_torch(module, shape),
            refimpl.networks.from_onnx(tmp_path / "a.onnx", batch=images),
        ]
        try:
            programs = [refimpl.plan(one, FRUGAL, "h100", BUDGET) for one in networks]
        except DoesNotFit:  # the weights alone are more
            continue
        right = after_three_steps(refimpl.plan(networks[0], "baseline, algorithms=memory", "h100"))
        assert [after_three_steps(one) for one in programs] == [right, right]
        return
    raise AssertionError(f"{name} does not fit in {BUDGET:.0%} of its baseline's memory")
