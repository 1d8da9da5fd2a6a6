"""Whatever samples from a checkpoint outside training does so in the precision of samplers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ingot.cli.env import _chat_and_model
from ingot.inference.engine import Engine
from ingot.inference.load import load_to_sample
from ingot.inference.synthesize import CheckpointWriter
from ingot.serve.terminal.local_model import load_local_model
from tests.post.making import checkpoint_of, tiny_model, tiny_tokenizer


def test_chat_trials_and_synthesis_sample_as_rl_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each held float32 weights on a GPU, at twice the memory and a fraction of the speed."""
    path = checkpoint_of(tiny_model(tiny_tokenizer()), tmp_path / "model")
    assert load_to_sample(path, device="cpu").embedding.weight.dtype == torch.float32
    asked = list[tuple[str, torch.device]]()

    def choose(precision: str, device: torch.device) -> torch.dtype:
        asked.append((precision, device))
        return torch.bfloat16

    monkeypatch.setattr("ingot.inference.load.choose_sampling_precision", choose)
    _, policy = _chat_and_model(str(path), "", 32)
    assert isinstance(policy, Engine)
    models = [CheckpointWriter(path).model, load_local_model(path).engine.model, policy.model]
    assert {model.embedding.weight.dtype for model in models} == {torch.bfloat16}
    assert {precision for precision, _ in asked} == {"auto"} and len(asked) == 3
