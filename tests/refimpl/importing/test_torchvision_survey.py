"""The survey of torchvision's classifiers: its rows hold what the page claims, and the page is made from them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("onnx")

from tests.refimpl.importing import torchvision_survey as survey
from tests.refimpl.importing.torchvision_models import POLICIES, torchvision_models

ROWS = {(one["question"], one["model"]): one for one in survey.read()}


def asked(question: str) -> dict[str, dict]:
    return {model: one for (each, model), one in ROWS.items() if each == question}


def test_the_page_is_made_from_the_rows() -> None:
    text = survey.PAGE.read_text(encoding="utf-8")
    assert survey.with_survey(text, survey.read()) == text


def test_a_row_that_changes_changes_the_page() -> None:
    text = survey.PAGE.read_text(encoding="utf-8")
    first, *others = survey.read()
    assert survey.with_survey(text, [first | {"layers": 12345}, *others]) != text


def test_sixty_convolutional_models_are_imported_planned_and_proved() -> None:
    convolutional = {
        model: one for model, one in asked("planned").items() if not model.startswith(("vit", "swin", "maxvit"))
    }
    there = [model for model, one in convolutional.items() if one.get("policies") == list(POLICIES)]
    assert len(there) >= 60 and len(convolutional) >= 65
    assert all(convolutional[model]["parameters_equal"] for model in there)


def test_what_is_not_imported_says_why_in_one_line() -> None:
    refused = [one["refused"] for one in asked("planned").values() if "layers" not in one]
    assert refused and all("not supported" in reason and "\n" not in reason for reason in refused)


@pytest.mark.parametrize("model", survey.FAMILIES)
def test_a_model_of_a_family_is_as_near_to_double_precision_as_pytorch(model: str) -> None:
    one = ROWS["compared", model]
    assert one["parameters_equal"] and one["same_both_ways"]
    assert one["ours"]["step"] <= 2 * one["pytorch"]["step"]
    assert one["planned"] == one["planned_from_file"] == list(POLICIES)


@pytest.mark.parametrize("model", survey.TRAINED)
def test_a_model_of_a_family_is_trained_in_the_share_to_the_baselines_bits(model: str) -> None:
    one = ROWS["trained", model]
    assert one["same_bits"] and one["same_bits_from_file"]
    assert one["budget"] <= survey.BUDGET * one["baseline"]


def test_rows_that_are_there_are_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("planned_row", "within_row", "trained_row", "row"):
        monkeypatch.setattr(survey, name, lambda model: {"made": model})
    monkeypatch.setattr(survey, "every", lambda: ["one", "two"])
    monkeypatch.setattr(survey, "FAMILIES", ("one",))
    monkeypatch.setattr(survey, "TRAINED", ("one",))
    whole = list(survey.survey([], []))
    assert [(one["question"], one["model"]) for one in whole] == [
        ("planned", "one"), ("planned", "two"), ("compared", "one"), ("trained", "one"), ("within", "one"),
    ]  # fmt: skip
    rest = list(survey.survey(whole[:3], ["one"]))
    assert [(one["question"], one["model"]) for one in rest] == [("trained", "one"), ("within", "one")]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(one) + "\n" for one in whole))
    monkeypatch.setattr(survey, "ROWS", tmp_path / "rows.jsonl")
    assert list(survey.survey(survey.read(), [])) == []


@pytest.mark.slow
def test_a_small_model_is_as_its_rows_say() -> None:
    try:
        torchvision_models()
    except ImportError:
        pytest.skip("torchvision is not installed")
    for question, make in (("planned", survey.planned_row), ("trained", survey.trained_row)):
        kept = ROWS[question, "squeezenet1_1"]
        assert make("squeezenet1_1").items() <= kept.items()
