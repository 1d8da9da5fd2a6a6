"""Adapters that stages trained, in PEFT's hands: language models and reward models, also from processes that divide the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from ingot.checkpoints.checkpoint import load_model
from ingot.checkpoints.convert import export_model
from ingot.post import reward
from ingot.post.reward_config import RewardConfig
from ingot.post.rewards.reward_model import RewardModel
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.files import read_json
from tests.making.stages import stage_folder
from tests.post.making import checkpoint_of, tiny_model
from tests.post.test_lora import LORA
from tests.post.test_processes import run_stage
from tests.post.test_reward import SHORT, write_rows
from tests.train.parallel.ranks import run_ranks

MESHES: dict[str, dict[str, int]] = {"tensor": {"tensor": 2}, "pipeline": {"pipeline": 2}}
TEXTS = [[2, 40, 50, 60, 61], [2, 77, 41, 9], [2, 33]]


def train_chat(mesh: dict[str, int], base: Path, path: Path) -> dict[str, Any]:
    kept = {"every": 2, "keep_every": 2}
    return run_stage(("sft", mesh), {"sft": {"checkpoint": base}}, path, lora=LORA, checkpoints=kept, steps=2)


def train_reward(mesh: dict[str, int], base: Path, path: Path, steps: int = 3) -> dict[str, Any]:
    optimizer = {"lr": 2e-2, "epsilon": 1e-4}  # a larger ε than usual: it does not blow up the last bit of gradients
    files = (str(base.parent / "pairs.jsonl"),)
    options = {"files": files, "held_out": 20, "steps": steps, "batch_answers": 8, "lora": LORA}
    config = RewardConfig.model_validate(SHORT | options | {"optimizer": optimizer, "mesh": mesh})
    return reward.run(config, {"checkpoint": base}, stage_folder(path))


def train_all(base: Path) -> list[dict[str, Any]]:
    """What the reward stages tell, in the order of MESHES."""
    told = []
    for name, mesh in MESHES.items():
        train_chat(mesh, base, base.parent / f"sft-{name}")
        told.append(train_reward(mesh, base, base.parent / f"reward-{name}"))
    return told


@pytest.fixture(scope="module")
def base(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint; beside it are pairs of answers, and the stages that two processes made of it, divided in two ways."""
    below = tmp_path_factory.mktemp("trained")
    write_rows(below / "pairs.jsonl", 60)
    found = checkpoint_of(tiny_model(tokenizer, std=0.05), below / "base")
    first, second = run_ranks(2, train_all, below / "store", found)
    assert first == second
    alone = train_reward({}, found, below / "reward")
    for told in first:
        assert told == pytest.approx(alone, rel=1e-5, abs=2e-6)
    return found


def with_peft(kind: str, adapter: Path, **options: Any) -> Any:
    """Our adapter as PEFT reads it, which finds the base by the adapter's own config.

    Imported here: the processes that train import this file too, and would spend seconds on it.
    """
    import peft
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return getattr(peft, kind).from_pretrained(adapter, **options).eval()


@pytest.mark.parametrize("mesh", MESHES)
def test_peft_computes_what_a_divided_model_has_learnt(mesh: str, base: Path) -> None:
    stage = base.parent / f"sft-{mesh}"
    theirs = with_peft("AutoPeftModelForCausalLM", stage / "adapter")
    ours, plain = load_model(stage), load_model(base)
    for text in TEXTS:
        tokens = torch.tensor([text])
        with torch.no_grad():
            torch.testing.assert_close(theirs(tokens).logits, ours(tokens), rtol=1e-4, atol=1e-5)
            assert float((ours(tokens) - plain(tokens)).abs().max()) > 1e-3, "it learnt something"


def test_a_base_that_peft_can_load_is_named_and_not_copied(base: Path, tmp_path: Path) -> None:
    folder = export_model(load_model(base), tmp_path / "exported")
    train_chat({}, folder, tmp_path / "sft")
    named = read_json(tmp_path / "sft" / "adapter" / "adapter_config.json")["base_model_name_or_path"]
    assert named == str(folder) and not (tmp_path / "sft" / "base").exists()
    own = base.parent / "sft-tensor"
    assert read_json(own / "adapter" / "adapter_config.json")["base_model_name_or_path"] == str(own / "base")


@pytest.mark.parametrize("mesh", MESHES)
def test_a_kept_step_has_the_adapters_of_all_ranks(mesh: str, base: Path) -> None:
    stage = base.parent / f"sft-{mesh}"
    kept, result = (load_model(path).state_dict() for path in (stage / "steps" / "step-0000002", stage))
    for name, value in result.items():
        torch.testing.assert_close(kept[name], value, rtol=0, atol=0)


@pytest.mark.parametrize("mesh", MESHES)
def test_a_divided_reward_model_is_that_of_one_process(mesh: str, base: Path) -> None:
    one, two = (load_model(base.parent / name).state_dict() for name in ("reward", f"reward-{mesh}"))
    assert "heads.reward.weight" in one
    for name, value in one.items():
        assert float((two[name] - value).norm()) <= 1e-5 * float(value.norm()), name


def test_a_reward_model_with_adapters(base: Path, tmp_path: Path) -> None:
    """It learns, its head too; PEFT gives the same rewards, and so does the base with the adapter as PEFT writes it."""
    told = train_reward({}, base, tmp_path / "one", steps=40)
    assert told["held_out_accuracy"] > 0.9
    ours = RewardModel.load(tmp_path / "one", torch.device("cpu")).scores(TEXTS)
    theirs = with_peft("AutoPeftModelForSequenceClassification", tmp_path / "one" / "adapter", pad_token_id=0)
    with torch.no_grad():
        assert [float(theirs(torch.tensor([text])).logits) for text in TEXTS] == pytest.approx(ours, abs=1e-5)
    theirs.save_pretrained(
        tmp_path / "theirs", save_embedding_layers=False
    )  # it finds no config of the base to compare
    again = RewardModel(load_model(base, adapter=tmp_path / "theirs"))
    assert again.scores(TEXTS) == pytest.approx(ours, abs=1e-5)
