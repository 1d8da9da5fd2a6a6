"""The guide on own conversations: its rows, its options and its program work as they stand on the page."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from datasets import Dataset

from ingot.post.conversations.row_forms import FORMS, recognise
from ingot.post.sft import run
from ingot.post.sft_config import SftConfig
from ingot.post.synthesize_config import SynthesizeConfig
from ingot.recipe.load import load_recipe
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.stage import StageFolder
from tests.post.making import checkpoint_of, tiny_model

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/guides/own-conversations.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


def test_from_files_to_a_fine_tuned_chat(
    tokenizer: Tokenizer, tmp_path: Path, make_folder: Callable[[str], StageFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's rows, in the page's files, by the page's options, on a tiny model; then the page's program on it."""
    rows = [json.loads(line) for line in blocks("json")[0].splitlines()]
    assert {recognise(row) for row in rows} == set(FORMS)
    data = tmp_path / "data"
    data.mkdir()
    (data / "conversations.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    (data / "alpaca.json").write_text(json.dumps([row for row in rows if "instruction" in row] * 4), encoding="utf-8")
    Dataset.from_list([row for row in rows if "tools" in row]).to_parquet(data / "tools.parquet")
    monkeypatch.chdir(tmp_path)
    options = yaml.safe_load(blocks("yaml")[0])
    options |= {"steps": 2, "device": "cpu", "optimizer": {"lr": 5e-4, "weight_decay": 0.01}}
    folder = make_folder("sft")
    checkpoint = checkpoint_of(tiny_model(tokenizer), tmp_path / "base")
    summary = run(SftConfig.model_validate(options), {"checkpoint": checkpoint}, folder)
    both = 2  # rows without a trace are learnt in both modes; the text has none
    assert summary["conversations"] == 1 + 1 + both * 4 + both * 4 + both
    printed = list[str]()
    program = blocks("python")[0].replace("runs/quickstart/extend", str(folder.artifact("checkpoint")))
    exec(program.replace("print(", "printed.append("), {"printed": printed})
    assert "2 and 2</think>4<|im_end|>" in printed[0]
    assert any(text.endswith("fromage<|im_end|>") for text in printed)


def test_the_other_options_are_valid(tmp_path: Path) -> None:
    _, raw, make = blocks("yaml")
    assert SynthesizeConfig.model_validate(yaml.safe_load(make)).environments[0].again == 2
    recipe = tmp_path / "my-sft.yaml"
    recipe.write_text(raw.replace("recipes/quickstart.yaml", str(ROOT / "recipes/quickstart.yaml")), encoding="utf-8")
    kinds = [stage.kind for stage in load_recipe(recipe).stages]
    assert "sft" in kinds
    assert "rl" not in kinds
