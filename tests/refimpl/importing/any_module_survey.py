"""Models of torchvision and transformers as PyTorch keeps them: all are planned, and what is held is measured.

    python -m tests.refimpl.importing.any_module_survey              # every row that ROWS lacks, and then the page
    python -m tests.refimpl.importing.any_module_survey swin_t       # that of one model
    python -m tests.refimpl.importing.any_module_survey --page       # the page alone, from ROWS

A row has the processor seconds of importing a model, and the policies whose programs are planned and proved.  It says
which of these fit in a share of what plain PyTorch needs beside weights, gradients and the optimiser's states.  And it
has the bytes that autograd holds between forward and backward: as predicted, and as a hook counts them when the model
runs on this CPU.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

import refimpl
from refimpl.network import Network
from refimpl.planner import DoesNotFit
from refimpl.planner.heading import opaque_shares
from refimpl.slots.context import Context
from tests.refimpl.importing.torchvision_models import POLICIES, model, torchvision_models
from tests.refimpl.importing.torchvision_survey import SIZES, classifiers, mib, table

ROOT = Path(__file__).resolve().parents[3]
ROWS = ROOT / "docs" / "measurements" / "any-module.jsonl"
PAGE = ROOT / "docs" / "any-module.md"
BEGIN, END = "<!-- begin any-module -->\n", "\n<!-- end any-module -->"
MACHINE, BATCH, TOKENS, BUDGET = "titan-x", 8, 64, 0.6
WITHIN = tuple(policy for policy in POLICIES if policy != "combined")  #: which searches long where memory is short
ENOUGH = "12GiB"
FIRST = ("swin_t", "maxvit_t", "T5Model", "resnet18", "mobilenet_v2", "densenet121", "vit_b_16", "googlenet")
#: Model of transformers → its configuration, and options where the default is a large model.
LANGUAGE: Mapping[str, tuple[str, dict[str, Any]]] = {
    "T5Model": ("T5Config", {}), "GPT2LMHeadModel": ("GPT2Config", {}), "BertForMaskedLM": ("BertConfig", {}),
    "RobertaForMaskedLM": ("RobertaConfig", {}), "DistilBertForMaskedLM": ("DistilBertConfig", {}),
    "AlbertForMaskedLM": ("AlbertConfig", {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}),
    "ElectraForMaskedLM": ("ElectraConfig", {}), "OPTForCausalLM": ("OPTConfig", {}),
    "LlamaForCausalLM": ("LlamaConfig", {"hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 8,
                                         "intermediate_size": 1408}),
    "MistralForCausalLM": ("MistralConfig", {"hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 8,
                                             "num_key_value_heads": 2, "intermediate_size": 1408, "head_dim": 64}),
    "SwinForImageClassification": ("SwinConfig", {}), "ViTForImageClassification": ("ViTConfig", {}),
}  # fmt: skip


def described(name: str) -> tuple[Any, Any, Callable[[Any], Any]]:
    """A model, its inputs by name, and a function that calls it with them."""
    torch.manual_seed(0)
    if name not in LANGUAGE:
        size = SIZES.get(name, 64)
        module = model(name, **({"image_size": size} if name.startswith("vit") else {}))
        images = torch.randn(BATCH, 3, size, size)
        return module, images, lambda module: module(images)
    import transformers

    configuration, options = LANGUAGE[name]
    module = getattr(transformers, name)(getattr(transformers, configuration)(**options))
    if "Image" in name:
        given = {"pixel_values": torch.randn(BATCH, 3, 224, 224)}
    else:
        tokens = torch.randint(5, 1000, (BATCH, TOKENS))
        given = {"input_ids": tokens} | ({"decoder_input_ids": tokens.clone()} if name.startswith("T5") else {})
    return module, given, lambda module: module(**given)


def held_by_pytorch(module: Any, run: Callable[[Any], Any], inputs: Any) -> int:
    """Bytes of the storages that autograd has saved after forward, but for parameters, buffers and inputs."""
    given = inputs.values() if isinstance(inputs, dict) else [inputs]
    known = {one.untyped_storage().data_ptr() for one in (*given, *module.parameters(), *module.buffers())}
    saved: dict[int, int] = {}

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    if getattr(getattr(module, "config", None), "use_cache", False):
        module.config.use_cache = False
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        made = run(module.train())
    held = sum(saved.values())
    del made
    return held


def predicted(network: Network) -> int:
    """Bytes of the maps between forward and backward."""
    across = Context(network, refimpl.machines.titan_x).maps_across()
    return sum(tensor.nbytes for tensor in across if tensor.kind == "map")


def survey_row(name: str) -> dict[str, Any]:
    module, inputs, run = described(name)
    start = time.process_time()
    try:
        network = refimpl.networks.from_torch(module, inputs, keeps="pytorch-cpu")
    except refimpl.NetworkError as error:
        return {"model": name, "refused": str(error)}
    took = time.process_time() - start
    needs, fits, seconds = 0, [], {}
    learnt = sum(
        tensor.nbytes for tensor in network.managed if tensor.kind == "weight gradient" and " by " not in tensor.name
    )
    stays = network.resident_bytes + learnt  # whatever becomes of the maps
    for policy in ("baseline", *POLICIES):
        start, share = time.process_time(), int(stays + BUDGET * (needs - stays))
        try:
            program = refimpl.plan(network, policy, MACHINE, share if policy in WITHIN else ENOUGH)
            fits += [policy] if policy in WITHIN else []
        except DoesNotFit:
            program = refimpl.plan(network, policy, MACHINE, ENOUGH)
        seconds[policy] = round(time.process_time() - start, 2)
        program.verify()
        needs = needs or program.peak_bytes
    shares = opaque_shares(network, refimpl.machines.titan_x)
    return {
        "model": name, "layers": len(network.layers), "opaque": dict(network.opaque),
        "stays": stays, "opaque_seconds": round(shares.seconds, 3), "opaque_bytes": round(shares.nbytes, 3),
        "import_seconds": round(took, 1), "plan_seconds": seconds, "needs": needs, "fits": fits,
        "predicted": predicted(network), "held": held_by_pytorch(module, run, inputs),
    }  # fmt: skip


def page(rows: list[dict[str, Any]]) -> str:
    """The rows in Markdown."""
    there = sorted((row for row in rows if "layers" in row), key=lambda row: (row["model"] in LANGUAGE, row["model"]))
    near = [row for row in there if abs(row["predicted"] / row["held"] - 1) <= 0.01]
    counted = (
        f"{len(there)} of {len(rows)} models are planned and proved under {len(POLICIES)} policies and the baseline"
    )
    lines = [f"{counted}; for {len(near)} what is held is within 1 % of the prediction."]
    lines += table(
        ["model", "layers", "opaque: time", "bytes", "import", "plans", "PyTorch needs", "stays",
         f"fit in {BUDGET:.0%} of the rest",
         "held, predicted", "as it was", "ratio"],
        [
            [
                row["model"], str(row["layers"]), f"{row['opaque_seconds']:.0%}", f"{row['opaque_bytes']:.0%}",
                f"{row['import_seconds']:.1f} s", f"{sum(row['plan_seconds'].values()):.1f} s", mib(row["needs"]),
                mib(row["stays"]),
                f"{len(row['fits'])} of {len(WITHIN)}",
                mib(row["predicted"]), mib(row["held"]), f"{row['predicted'] / row['held']:.3f}",
            ]
            for row in there
        ],
    )  # fmt: skip
    refused = [[row["model"], f"`{row['refused']}`"] for row in rows if "refused" in row]
    return "\n".join([*lines, *(table(["refused", "why"], refused) if refused else [])])


def read() -> list[dict[str, Any]]:
    return [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []


def with_rows(text: str, rows: list[dict[str, Any]]) -> str:
    """The text of the page with these rows between its marks."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{page(rows)}\n{END}{rest.partition(END)[2]}"


def main(arguments: list[str]) -> None:
    if arguments != ["--page"]:
        torch.set_num_threads(1)
        torchvision_models()
        kept = {row["model"] for row in read()}
        for name in arguments or dict.fromkeys((*FIRST, *LANGUAGE, *classifiers())):
            if name not in kept:
                with ROWS.open("a", encoding="utf-8") as file:
                    made = survey_row(name)
                    file.write(json.dumps(made) + "\n")
                print(json.dumps(made)[:300], flush=True)
    PAGE.write_text(with_rows(PAGE.read_text(encoding="utf-8"), read()), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
