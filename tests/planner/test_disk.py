"""The size of what a stage with adapters writes, against a real stage's folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingot.checkpoints.convert import export_model
from ingot.model.initialise import initialise
from ingot.model.transformer import Transformer
from ingot.planner.check_training import checkpoint_bytes
from ingot.planner.cost import Cost
from ingot.post import sft
from ingot.post.sft_config import SftConfig
from ingot.recipe.recipe import FromPath
from tests.making.stages import stage_folder
from tests.post.making import SUMS, checkpoint_of, tiny_tokenizer
from tests.train.parallel.models import shape

BLOCK = {"mixer": {"heads": 8, "key_value_heads": 8, "head_width": 48}, "feed_forward": {"width": 1152}}


@pytest.mark.parametrize("form", ["a stage's", "huggingface"])
def test_a_stage_with_adapters_takes_the_bytes_that_are_planned(form: str, tmp_path: Path) -> None:
    """Checkpoints of what trains, the merged model, the adapters for PEFT, and a base unless the input is one already."""
    tokenizer = tiny_tokenizer()
    model = Transformer(shape(BLOCK, 4, width=384, vocabulary_size=tokenizer.vocabulary_size, context=128))
    initialise(model, 0)
    model.tokenizer = tokenizer
    start = checkpoint_of(model, tmp_path / "start")
    if form == "huggingface":
        start = tmp_path / "exported"
        export_model(tmp_path / "start", start)
    config = SftConfig.model_validate(
        {
            **{"steps": 2, "sequence_length": 128, "tasks": SUMS, "task_conversations": 20, "device": "cpu"},
            **{"precision": "float32", "lora": {"rank": 8, "alpha": 8}, "compile": "off"},
            "checkpoints": {"every": 1, "keep_every": 1},
        }
    )
    folder = stage_folder(tmp_path / "sft")
    sft.run(config, {"checkpoint": start}, folder)
    size = sum(file.stat().st_size for file in folder.path.rglob("*") if file.is_file())
    cost = Cost(parameters=sum(each.numel() for each in model.parameters()))
    _, stays = checkpoint_bytes(config, cost, model.config, FromPath(start, "checkpoint"))
    assert (folder.path / "base").is_dir() == (form != "huggingface")
    assert size == pytest.approx(stays, rel=0.03)  # the rest is descriptions, tokenizers and headers
