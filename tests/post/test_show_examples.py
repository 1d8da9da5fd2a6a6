"""`ingot sft --show` and the stage's own template: what is printed is what is learnt, and nothing is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from ingot.checkpoints.checkpoint import load_model
from ingot.cli.app import app
from ingot.post import sft
from ingot.post.data.conversations.shown import marked
from ingot.post.sft_config import SftConfig
from ingot.tokens.batch import TokenSequence
from ingot.tokens.chat import ChatFormat, Message
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.stage import StageFolder
from tests.making.rows import write_rows
from tests.post.making import checkpoint_of, tiny_model

ROW = {
    "messages": [
        {"role": "user", "content": "Is it?"},
        {"role": "assistant", "content": "Yes.", "thinking": "über"},
    ]
}


def test_what_is_printed_is_what_is_learnt(tokenizer: Tokenizer, tmp_path: Path) -> None:
    checkpoint = checkpoint_of(tiny_model(tokenizer), tmp_path / "base")
    write_rows(tmp_path / "talks.jsonl", [ROW])
    stage: dict[str, Any] = {
        "files": [str(tmp_path / "talks.jsonl")],
        "tasks": None,
        "steps": 1,
        "sequence_length": 512,
        "device": "cpu",
    }
    stage |= {"template": "hermes4", "template_options": {"assistant": "me"}, "inputs": {"checkpoint": str(checkpoint)}}
    (tmp_path / "sft.yaml").write_text(json.dumps(stage), encoding="utf-8")
    words = ["sft", str(tmp_path / "sft.yaml"), "--show", "1", "--runs", str(tmp_path / "runs")]
    head, _, text = CliRunner().invoke(app, words).stdout.partition("\n")
    assert head.startswith("example 1: ") and head.endswith(" learnt, thinking")
    assert text.startswith("<|im_start|>system\nYou are a deep thinking AI")
    assert text.endswith("<|im_start|>me\n⟦<think>\nüber\n</think>\nYes.<|im_end|>⟧\n\n")
    assert not (tmp_path / "runs").exists()


def test_colours(tokenizer: Tokenizer) -> None:
    tokens = [*tokenizer.encode("a"), tokenizer.special["<|im_end|>"], *tokenizer.encode("é")]
    weights = [0.0] * (len(tokens) - 2) + [1.0, 1.0]
    shown = marked(TokenSequence(tokens, {"weight": weights}), tokenizer, colour=True)
    assert shown.startswith("\x1b[90ma") and "\x1b[90m\x1b[1m<|im_end|>" in shown
    assert shown.endswith("\x1b[32mé\x1b[0m")


def test_the_template_goes_with_the_checkpoint(
    tokenizer: Tokenizer, tmp_path: Path, make_folder: Callable[[str], StageFolder]
) -> None:
    checkpoint = checkpoint_of(tiny_model(tokenizer), tmp_path / "base")
    write_rows(tmp_path / "talks.jsonl", [ROW])
    config = SftConfig(
        steps=1,
        sequence_length=256,
        tasks=None,
        files=(str(tmp_path / "talks.jsonl"),),
        template="qwen3",
        template_options={"assistant": "me"},
        precision="float32",
        device="cpu",
    )
    folder = make_folder("sft")
    sft.run(config, {"checkpoint": checkpoint}, folder)
    learnt = load_model(folder.artifact("checkpoint"))
    assert learnt.tokenizer is not None
    prompt = ChatFormat(learnt.tokenizer).prompt([Message("user", "?")], thinking=False)
    assert learnt.tokenizer.decode(prompt).endswith("<|im_start|>me\n<think>\n\n</think>\n\n")
