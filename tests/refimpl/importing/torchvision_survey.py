"""torchvision's classifiers: which are imported, what plans them, and what training a model of each family gives.

    python -m tests.refimpl.importing.torchvision_survey             # every row that ROWS lacks, and then the page
    python -m tests.refimpl.importing.torchvision_survey resnet18    # those of one model
    python -m tests.refimpl.importing.torchvision_survey --page      # the page alone, from ROWS

The models have drawn weights, ten classes and images of 64².  A model has one row for each of four questions, and a row
that was written is kept: a survey that was stopped goes on where it was.

- `planned`: imported by `torch.export`, with as many parameters as PyTorch counts; all policies plan it, and every
  program is verified.
- `compared`, a model of each family: imported from an ONNX file, too, and an iteration beside PyTorch's in double
  precision (`torchvision_models`).
- `trained`: three iterations within a share of what the baseline needs, from the module and from the file; all weights,
  momenta and statistics beside the baseline's.
- `within`, of the same models as `compared`: the policies that fit that share of the memory.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

import refimpl
from refimpl.network import Network
from refimpl.planner import DoesNotFit, Program
from tests.refimpl.importing.torchvision_models import (
    MODELS,
    POLICIES,
    exported,
    model,
    planned,
    row,
    torchvision_models,
)

ROOT = Path(__file__).resolve().parents[3]
ROWS = ROOT / "docs" / "measurements" / "torchvision.jsonl"
PAGE = ROOT / "docs" / "torchvision.md"
BEGIN, END = "<!-- begin survey -->\n\n", "\n\n<!-- end survey -->"
#: A model of each family that is trained; of those after it, PyTorch's iteration is compared.
TRAINED = (
    "squeezenet1_1", "mobilenet_v2", "mobilenet_v3_small", "shufflenet_v2_x1_0", "mnasnet0_5", "efficientnet_b0",
    "regnet_y_400mf", "resnet18", "googlenet", "densenet121", "convnext_tiny",
)  # fmt: skip
FAMILIES = (*TRAINED, "alexnet", "vgg11", "inception_v3")
#: More than 300 million parameters: left out.
GIANTS = ("regnet_y_128gf", "vit_l_16", "vit_l_32", "vit_h_14")
IMAGES = 32  #: of the models that are planned
SIZES = {"inception_v3": 96, "maxvit_t": 224, "vit_h_14": 70}  #: others take images of 64²
BUDGET = 0.6  #: of what the baseline needs
EFFORT = "combined, effort=20"  #: plans at most, where the combined policy has to search
FRUGAL = "superneurons, algorithms=memory"  #: what the models are trained with
COMPARED = {"evaluation": "probabilities", "training": "losses", "gradients": "gradients", "step": "after a step"}


def classifiers() -> list[str]:
    """All of torchvision's classifiers."""
    torchvision_models()
    import torchvision

    names: list[str] = torchvision.models.list_models(module=torchvision.models)
    return names


def every() -> list[str]:
    """All of torchvision's classifiers but the giants."""
    return [name for name in classifiers() if name not in GIANTS]


# -- rows --------------------------------------------------------------------------------------------------------------


def imported(name: str) -> tuple[torch.nn.Module, Network]:
    """A model and its network.  Raises `NetworkError`."""
    size = SIZES.get(name, 64)
    module = model(name, **({"image_size": size} if name.startswith("vit") else {}))
    return module, refimpl.networks.from_torch(module, (IMAGES, 3, size, size), keeps="own")


def planned_row(name: str) -> dict[str, Any]:
    try:
        module, network = imported(name)
    except refimpl.NetworkError as error:
        return {"refused": str(error)}
    return {
        "size": SIZES.get(name, 64), "layers": len(network.layers), "parameters": network.parameter_count,
        "parameters_equal": network.parameter_count == sum(weight.numel() for weight in module.parameters()),
        "policies": planned(network),
    }  # fmt: skip


def within_row(name: str) -> dict[str, Any]:
    _, network = imported(name)
    fits = []
    for policy in POLICIES:
        try:
            refimpl.plan(network, EFFORT if policy == "combined" else policy, "titan-x", BUDGET).verify()
        except DoesNotFit:
            continue
        fits.append(policy)
    return {"policies": fits}


def after_three_steps(program: Program) -> list[bytes]:
    """Everything that three iterations leave: weights, momenta and statistics."""
    program.verify()
    with refimpl.Trainer(program, "cpu") as trainer:
        for seed in range(3):
            random = np.random.default_rng(seed)
            images = random.standard_normal(program.network.input.shape, dtype=np.float32)
            trainer.step(images, random.integers(0, 10, program.network.batch).astype(np.int32))
        return [values.tobytes() for values in trainer.state().values()]


def trained_row(name: str) -> dict[str, Any]:
    """With the least of these batches whose maps are large enough, beside the weights, that the share can be kept."""
    size = MODELS.get(name, 64)
    for images in (16, 32, 64, 128):
        shape = (images, 3, size, size)
        module = model(name)
        with TemporaryDirectory() as folder:
            path = Path(folder) / f"{name}.onnx"
            exported(module, shape, path)
            networks = [refimpl.networks.from_torch(module, shape), refimpl.networks.from_onnx(path, batch=images)]
        try:
            small, from_file = (refimpl.plan(one, FRUGAL, "h100", BUDGET) for one in networks)
        except DoesNotFit:  # the weights alone are more
            continue
        right = after_three_steps(refimpl.plan(networks[0], "baseline, algorithms=memory", "h100"))
        return {
            "images": images, "size": size, "budget": small.budget,
            "baseline": refimpl.least_budget(networks[0], "baseline", "h100"),
            "same_bits": after_three_steps(small) == right,
            "same_bits_from_file": after_three_steps(from_file) == right,
        }  # fmt: skip
    raise AssertionError(f"{name} does not fit in {BUDGET:.0%} of its baseline's memory")


def survey(kept: list[dict[str, Any]], names: list[str]) -> Iterator[dict[str, Any]]:
    """The rows that are not kept yet, of these models or of all; the four questions one after another."""
    questions = (
        ("planned", planned_row, every()), ("compared", row, FAMILIES), ("trained", trained_row, TRAINED),
        ("within", within_row, FAMILIES),
    )  # fmt: skip
    there = {(one["model"], one["question"]) for one in kept}
    for question, make, asked in questions:
        for name in asked:
            if (name, question) not in there and (not names or name in names):
                start = time.process_time()
                made = {"question": question, "model": name} | make(name)
                yield made | {"processor_seconds": round(time.process_time() - start, 1)}


# -- the page ----------------------------------------------------------------------------------------------------------


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    return ["", *(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))]


def page(rows: list[dict[str, Any]]) -> str:
    """The rows in Markdown: what is imported, what is not, and a model of each family."""
    asked: dict[str, dict[str, Any]] = {name: {} for name in ("planned", "compared", "trained", "within")}
    for one in rows:
        asked[one["question"]][one["model"]] = one
    models = sorted(asked["planned"])
    there = [name for name in models if "layers" in asked["planned"][name]]
    lines = [f"{len(there)} of {len(models)} models are imported."]
    lines += table(
        ["model", "images of", "layers", "parameters", "planned and proved"],
        [
            [name, f"{one['size']}²", f"{one['layers']}", f"{one['parameters']:,}", counted(one["policies"])]
            for name, one in ((name, asked["planned"][name]) for name in there)
        ],
    )
    refused = [[name, f"`{asked['planned'][name]['refused']}`"] for name in models if name not in there]
    lines += table(["not imported", "why"], refused) if refused else []
    lines += table(
        ["model", "images", *COMPARED.values(), "from ONNX", "planned from ONNX", f"fit in {BUDGET:.0%}"],
        [
            [
                *(name, f"{one['images']} of {one['size']}²"),
                *(f"{one['ours'][what]:.1e} ({one['pytorch'][what]:.1e})" for what in COMPARED),
                *("the same" if one["same_both_ways"] else "another", counted(one["planned_from_file"])),
                counted(asked["within"][name]["policies"]) if name in asked["within"] else "",
            ]
            for name, one in asked["compared"].items()
        ],
    )
    lines += table(
        ["model", "images", "the baseline needs", "trained in", "from the module", "from ONNX"],
        [
            [
                *(name, f"{one['images']} of {one['size']}²", mib(one["baseline"]), mib(one["budget"])),
                *("the same bits" if one[what] else "other bits" for what in ("same_bits", "same_bits_from_file")),
            ]
            for name, one in asked["trained"].items()
        ],
    )
    hours = sum(one["processor_seconds"] for one in rows) / 3600
    return "\n".join([*lines, "", f"Made in {hours:.1f} hours of processor time."])


def counted(policies: list[str]) -> str:
    return f"{len(policies)} of {len(POLICIES)}"


def mib(nbytes: int) -> str:
    return f"{nbytes / (1 << 20):,.1f} MiB"


def read() -> list[dict[str, Any]]:
    return [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []


def with_survey(text: str, rows: list[dict[str, Any]]) -> str:
    """The text of the page with these rows between its marks."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}{page(rows)}{END}{rest.partition(END)[2]}"


def main(arguments: list[str]) -> None:
    if arguments != ["--page"]:
        torch.set_num_threads(1)
        try:
            torchvision_models()
        except ImportError:
            sys.exit("The survey reads torchvision's models: install it with `pip install torchvision`.")
        for made in survey(read(), arguments):
            with ROWS.open("a", encoding="utf-8") as file:
                file.write(json.dumps(made) + "\n")
            print(json.dumps(made)[:200], flush=True)
    PAGE.write_text(with_survey(PAGE.read_text(encoding="utf-8"), read()), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
