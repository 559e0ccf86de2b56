"""Models of the package `transformers`, small and with drawn weights; skipped where the package is missing."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import refimpl
from refimpl import NetworkError
from tests.messages import raises_naming

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch")

from tests.refimpl.importing.beside_pytorch import beside_pytorch, torchvision_models  # noqa: E402

with suppress(ImportError):
    torchvision_models()  # which transformers imports, where it is installed
transformers = pytest.importorskip("transformers")

WORDS, CLASSES = 97, 5
SMALL = {
    "vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "max_position_embeddings": 32, "num_labels": CLASSES, "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}  # fmt: skip
GPT2 = {
    "vocab_size": WORDS, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 4, "resid_pdrop": 0.0,
    "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": 0, "eos_token_id": 0,
}  # fmt: skip
IMAGES = {**SMALL, "image_size": 16, "patch_size": 4}


def model(kind: str, configuration: str, options: dict[str, Any], attention: str | None = None) -> Any:
    config = getattr(transformers, configuration)(**options)
    if attention:
        config._attn_implementation = attention
    return getattr(transformers, kind)(config)


LLAMA = {**SMALL, "num_key_value_heads": 2}
#: Name → how a model is made, and the kinds of the layers of a block.
MODELS: dict[str, tuple[Callable[[], Any], set[str]]] = {
    "GPT-2": (lambda: model("GPT2LMHeadModel", "GPT2Config", GPT2), {"attention", "gelu", "layernorm"}),
    "GPT-2, products": (
        lambda: model("GPT2LMHeadModel", "GPT2Config", GPT2, "eager"), {"attention", "gelu", "layernorm"},
    ),
    "BERT, masked words": (lambda: model("BertForMaskedLM", "BertConfig", SMALL), {"attention", "gelu"}),
    "BERT, products": (lambda: model("BertForMaskedLM", "BertConfig", SMALL, "eager"), {"attention", "gelu"}),
    "BERT, a class": (
        lambda: model("BertForSequenceClassification", "BertConfig", SMALL), {"attention", "take", "tanh"},
    ),
    "Llama": (lambda: model("LlamaForCausalLM", "LlamaConfig", LLAMA), {"rmsnorm", "rotary", "silu", "mul"}),
    "Llama, products": (lambda: model("LlamaForCausalLM", "LlamaConfig", LLAMA, "eager"), {"rotary"}),
    "Mistral": (lambda: model("MistralForCausalLM", "MistralConfig", LLAMA), {"rmsnorm", "rotary"}),
    "GPT-NeoX": (lambda: model("GPTNeoXForCausalLM", "GPTNeoXConfig", SMALL), {"rotary", "gelu"}),
    "ViT": (lambda: model("ViTForImageClassification", "ViTConfig", IMAGES), {"prepend", "position"}),
}  # fmt: skip


def example(name: str) -> Any:
    if name == "ViT":
        return torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    tokens = torch.randint(0, WORDS, (2, 16), generator=torch.Generator().manual_seed(0))
    tokens[:, 3] = 0  # BERT's padding, whose row its embedding does not train
    return tokens


@pytest.mark.parametrize("name", MODELS)
def test_a_step_is_pytorchs_and_weights_come_back(name: str) -> None:
    make, kinds = MODELS[name]
    torch.manual_seed(0)
    beside = beside_pytorch(make(), example(name))
    assert kinds <= {layer.kind for layer in beside.network.layers}
    assert beside.agrees, beside
    layers, parameters = len(beside.network.layers), beside.network.parameter_count
    print(f"| {name} | {layers} | {parameters:,} | {beside.loss:.1e} | {beside.weight:.1e} |")


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: model("T5EncoderModel", "T5Config", {"vocab_size": WORDS, "d_model": 32, "d_kv": 8, "d_ff": 64,
                       "num_layers": 1, "num_heads": 4, "dropout_rate": 0.0}), None),
        (lambda: model("SwinForImageClassification", "SwinConfig", {"image_size": 32, "patch_size": 2, "embed_dim": 16,
                       "depths": [1], "num_heads": [2], "window_size": 4, "drop_path_rate": 0.0}),
         (2, 3, 32, 32)),
    ],
)  # fmt: skip
def test_relative_position_biases_are_refused_in_one_line(make: Any, shape: Any) -> None:
    with raises_naming(NetworkError, "relative position biases"):
        refimpl.networks.from_torch(make(), example("T5") if shape is None else shape, keeps="own")


def test_a_model_that_keeps_what_it_has_read_is_not_changed() -> None:
    module = model("GPT2LMHeadModel", "GPT2Config", GPT2)
    assert module.config.use_cache
    refimpl.networks.from_torch(module, example("GPT-2"))
    assert module.config.use_cache
