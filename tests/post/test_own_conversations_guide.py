"""The guide on own conversations: its rows, its options and its program work as they stand on the page."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml
from datasets import Dataset
from typer.testing import CliRunner

from ingot.checkpoints.checkpoint import load_model
from ingot.cli.app import app
from ingot.post.data.conversations.row_forms import FORMS, recognise
from ingot.post.sft import run
from ingot.post.sft_config import SftConfig
from ingot.post.synthesis.config import SynthesizeConfig
from ingot.recipe.load import load_recipe
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.stage import StageFolder
from tests.making.rows import write_rows
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
    write_rows(data / "conversations.jsonl", rows)
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


def test_adapters_from_a_file_to_a_hugging_face_folder(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands of the page with its own recipe: train, chat with the merged model and with the adapters, export both ways.

    The model is as large as the quickstart's; of its 120 steps three are made.
    """
    monkeypatch.chdir(tmp_path)
    base = tmp_path / "base"
    checkpoint_of(tiny_model(tokenizer, width=128), base)
    row = {"messages": [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Pip."}]}
    write_rows(tmp_path / "FILE.jsonl", [row] * 3)
    page = re.search(r"```\n(ingot sft recipes/own-conversations-lora.*?)```", GUIDE, re.DOTALL)
    assert page is not None
    commands = [line.partition("#")[0].split() for line in page[1].splitlines()]
    assert [words[1] for words in commands] == ["sft", "chat", "chat", "export"]
    answers = list[str]()
    for number, (_, *words) in enumerate(commands):
        replaced = {"runs/quickstart": str(base), "FOLDER": f"out-{number}"}
        words = [replaced.get(word, word.replace("recipes/", f"{ROOT}/recipes/")) for word in words]
        if words[0] == "sft":
            words += ["--input", f"checkpoint={base}", "--set", "steps=3", "--set", "task_conversations=30"]
        if words[0] == "chat":
            words += ["--prompt", "Who?", "--max-new-tokens", "8", "--temperature", "0", "--tools", "none"]
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, (words, done.output)
        answers += [done.output] if words[0] == "chat" else []
    assert len(answers) == 2 and answers[0] == answers[1] != ""
    assert (
        CliRunner().invoke(app, ["export", str(base), "added", "--adapter", "runs/own-conversations-lora"]).exit_code
        == 0
    )
    merged, added, plain = (load_model(tmp_path / name).state_dict() for name in ("out-3", "added", "base"))
    for name, value in merged.items():
        torch.testing.assert_close(added[name], value, rtol=0, atol=0)
    assert any(not torch.equal(value, plain[name]) for name, value in merged.items())


def test_the_other_options_are_valid(tmp_path: Path) -> None:
    _, raw, make = blocks("yaml")
    assert SynthesizeConfig.model_validate(yaml.safe_load(make)).environments[0].again == 2
    recipe = tmp_path / "my-sft.yaml"
    recipe.write_text(raw.replace("recipes/quickstart.yaml", str(ROOT / "recipes/quickstart.yaml")), encoding="utf-8")
    kinds = [stage.kind for stage in load_recipe(recipe).stages]
    assert "sft" in kinds
    assert "rl" not in kinds
