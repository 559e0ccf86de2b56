"""Models of torchvision and transformers with small inputs, for the tables of `docs/in_pytorch-evidence.md`."""

from __future__ import annotations

from typing import Any

import torch

import refimpl
from refimpl.planner import DoesNotFit, Program
from tests.refimpl.importing.beside_pytorch import torchvision_models
from tests.refimpl.torch.trained_modules import Beside

#: Model of torchvision → the height and width of its images, and their number.
IMAGES = {
    "resnet18": (64, 8), "resnet50": (64, 4), "vgg11": (64, 4), "googlenet": (64, 8), "inception_v3": (107, 4),
    "mobilenet_v2": (64, 8), "mobilenet_v3_small": (64, 8), "densenet121": (64, 4),
    "efficientnet_b0": (64, 4), "convnext_tiny": (64, 4), "vit_b_16": (64, 4),
}  # fmt: skip
AUXILIARY = ("googlenet", "inception_v3")  #: have classifiers beside the end
WORDS, TOKENS, TEXTS = 256, 128, 8
NARROW = {"hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "max_position_embeddings": TOKENS}
#: Model of transformers → its configuration: bytes of a text, four blocks, 128 channels.
TEXT: dict[str, tuple[str, dict[str, Any]]] = {
    "GPT2LMHeadModel": (
        "GPT2Config", {"n_embd": 128, "n_layer": 4, "n_head": 4, "n_positions": TOKENS, "bos_token_id": 0,
                       "eos_token_id": 0},
    ),
    "BertForMaskedLM": ("BertConfig", NARROW | {"intermediate_size": 512}),
    "LlamaForCausalLM": ("LlamaConfig", NARROW | {"intermediate_size": 344, "num_key_value_heads": 2}),
}  # fmt: skip
MODELS = (*IMAGES, *TEXT)


def beside(name: str, size: int | None = None, batch: int | None = None) -> Beside:
    """A model that trains on small images, or on bytes of texts, beside plain PyTorch.

    Args:
        name: of `MODELS`.
        size: the height and width of its images (None: those of `IMAGES`), or tokens a text.
        batch: images or texts.
    """
    torch.manual_seed(0)
    torchvision = torchvision_models()  # transformers imports it, too
    if name in TEXT:
        import transformers

        configuration, options = TEXT[name]
        config = getattr(transformers, configuration)(vocab_size=WORDS, use_cache=False, **options)
        shape = (batch or TEXTS, size or TOKENS)
        module = getattr(transformers, name)(config).train()
        return Beside(module, torch.randint(0, WORDS, shape), torch.randint(0, WORDS, shape))
    own_size, own_batch = IMAGES[name]
    size, batch = size or own_size, batch or own_batch
    given: dict[str, Any] = {"aux_logits": False, "init_weights": False} if name in AUXILIARY else {}
    given |= {"image_size": size} if name.startswith("vit") else {}
    return Beside(getattr(torchvision, name)(num_classes=10, **given).train(), (batch, 3, size, size))


def at_half(network: Any, policy: str) -> tuple[Program, float]:
    """The plan, and the share of the maps held by plain PyTorch that its budget leaves room for."""
    held = refimpl.plan(network, "baseline", "titan-x", "1000GiB").decisions()["predicted"]["held"]
    gradients = sum(tensor.nbytes for tensor in network.managed if tensor.kind == "weight gradient")
    stays = network.resident_bytes + gradients  # at the end of backward, whatever the plan
    for tenths in range(5, 21):
        try:
            return refimpl.plan(network, policy, "titan-x", int(stays + tenths / 10 * held)), tenths / 10
        except DoesNotFit:
            continue
    raise AssertionError(f"{policy} does not fit in twice what the baseline takes")


def mib(nbytes: int) -> str:
    return f"{nbytes / (1 << 20):,.1f} MiB"
