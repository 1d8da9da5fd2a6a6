"""Reward models against TRL's RewardTrainer and transformers' sequence classifiers; what they learn, and who uses them."""

from __future__ import annotations

import copy
import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from ingot.checkpoints.checkpoint import load_model, open_model
from ingot.checkpoints.convert import export_model
from ingot.checkpoints.heads import with_head
from ingot.envs.episode import Episode
from ingot.model.transformer import Transformer
from ingot.post import prefer, reward
from ingot.post.data.conversations.sequences import PoolSource
from ingot.post.data.pairs.answers import sample_answers
from ingot.post.data.pairs.own_pairs import sample_pairs
from ingot.post.data.pairs.pair import PairSource
from ingot.post.policy import chat_format
from ingot.post.prefer_config import PreferConfig
from ingot.post.reward_config import RewardConfig
from ingot.post.rewards.reward_model import RewardModel
from ingot.post.rewards.reward_rows import RewardRow, read_reward_rows
from ingot.post.rl import stage as rl
from ingot.post.rl.config import RlConfig
from ingot.tokens.tokenizer import Tokenizer
from ingot.train.losses.reward import BradleyTerry, Regression
from ingot.train.losses.terms import LossTerm
from ingot.workspace.errors import ArtifactError, CheckFailed, DataError, RecipeError
from ingot.workspace.files import read_jsonl, write_jsonl
from ingot.workspace.stage import StageFolder
from tests.making.stages import stage_folder
from tests.post.making import SUMS, checkpoint_of, episode, random_tokens, tiny_model
from tests.train.toy import loss_and_gradients

MakeFolder = Callable[[str], StageFolder]
SHORT: dict[str, Any] = {"sequence_length": 64, "precision": "float32", "device": "cpu", "optimizer": {"lr": 3e-3}}


@pytest.fixture
def model(tokenizer: Tokenizer, tmp_path: Path) -> Transformer:
    """A tiny model with a reward head."""
    return with_head(open_model(checkpoint_of(tiny_model(tokenizer), tmp_path / "base")), "reward", seed=3).load()


def rows_of(model: Transformer, paired: bool) -> list[RewardRow]:
    assert model.config.vocabulary_size is not None
    rng, generator = random.Random(5), torch.Generator().manual_seed(5)
    lengths = [[rng.randint(2, 20) for _ in range(1 + paired)] for _ in range(5)]
    return [
        RewardRow(tuple(random_tokens(n, model.config.vocabulary_size, generator) for n in each), rng.gauss(0, 1))
        for each in lengths
    ]


def classifier(model: Transformer, folder: Path) -> Any:
    """The exported model, as transformers loads it."""
    from transformers import AutoModelForSequenceClassification

    export_model(model, folder)
    peer, told = AutoModelForSequenceClassification.from_pretrained(folder, output_loading_info=True)
    assert peer.config.num_labels == 1
    assert not told["missing_keys"] and not told["unexpected_keys"]
    return peer


def padded(peer: Any, texts: list[list[int]]) -> dict[str, Tensor]:
    """Right-padded, as TRL's collator makes it."""
    length, padding = max(map(len, texts)), peer.config.pad_token_id
    ids = torch.tensor([text + [padding] * (length - len(text)) for text in texts])
    mask = torch.tensor([[1] * len(text) + [0] * (length - len(text)) for text in texts])
    return {"input_ids": ids, "attention_mask": mask}


def in_every_cut(
    model: Transformer, term: LossTerm, rows: list[RewardRow], folder: Path
) -> tuple[float, dict[str, Any]]:
    """Loss and gradients of a real step, the same however the answers are packed and cut."""
    found = []
    kind = PairSource if len(rows[0].answers) == 2 else PoolSource
    for micro_batch_tokens, capacity in ((10_000, 200), (10_000, 21), (30, 21)):
        source = kind([row.sequences() for row in rows], len(rows), capacity, micro_batch_tokens, seed=1)
        at = stage_folder(folder / f"{micro_batch_tokens}-{capacity}")
        metrics, gradients = loss_and_gradients(model, [term], source.batches(0)[0], at)
        found.append((metrics["loss"], gradients))
    for loss, gradients in found[1:]:
        assert loss == pytest.approx(found[0][0], rel=1e-5)
        for name, value in gradients.items():
            torch.testing.assert_close(value, found[0][1][name], rtol=1e-3, atol=2e-6)
    return found[0]


def same_gradients(found: dict[str, Tensor], model: Transformer, peer: Any) -> None:
    """Each parameter's gradient is that of the tensor with the same numbers in the classifier."""
    theirs = {name: each for name, each in peer.named_parameters() if each.grad is not None}
    assert len(theirs) >= 10
    torch.testing.assert_close(found["heads.reward.weight"], theirs["score.weight"].grad, rtol=1e-4, atol=1e-6)
    for ours, name in (
        ("embedding.weight", "model.embed_tokens.weight"),
        ("norm.gain", "model.norm.weight"),
        ("blocks.1.feed_forward.down.weight", "model.layers.1.mlp.down_proj.weight"),
        ("blocks.0.mixer.output.weight", "model.layers.0.self_attn.o_proj.weight"),
    ):
        expected = theirs[name].grad
        assert expected.abs().max() > 1e-6
        torch.testing.assert_close(found[ours], expected, rtol=1e-3, atol=1e-5 * float(expected.abs().max()))


@pytest.mark.parametrize("centring", [0.0, 0.1])
def test_pairs_against_trl(centring: float, model: Transformer, tmp_path: Path) -> None:
    from trl import RewardTrainer

    rows = rows_of(model, paired=True)
    loss, gradients = in_every_cut(model, BradleyTerry(centring=centring), rows, tmp_path)
    peer = classifier(model, tmp_path / "exported").train()
    trainer = SimpleNamespace(
        model=peer,
        args=SimpleNamespace(center_rewards_coefficient=centring or None),
        accelerator=SimpleNamespace(gather=lambda x: x, gather_for_metrics=lambda x: x),
        _metrics={"train": defaultdict(list)},
        _total_train_tokens=0,
        _tp_size=1,
    )
    texts = [row.answers[half] for half in (0, 1) for row in rows]
    inputs = padded(peer, texts) | {"margin": torch.tensor([row.value for row in rows])}
    margin = inputs.pop("margin")

    def forward(margin: Tensor = margin, **given: Any) -> Any:
        return peer(**{name: value for name, value in given.items() if name != "margin"})

    expected = RewardTrainer.compute_loss(trainer, forward, {**inputs, "margin": margin})
    expected.backward()
    assert loss == pytest.approx(expected.item(), rel=1e-5)
    same_gradients(gradients, model, peer)


def test_scores_against_transformers(model: Transformer, tmp_path: Path) -> None:
    rows = rows_of(model, paired=False)
    loss, gradients = in_every_cut(model, Regression(), rows, tmp_path)
    peer = classifier(model, tmp_path / "exported")
    labels = torch.tensor([row.value for row in rows])
    result = peer(**padded(peer, [row.answers[0] for row in rows]), labels=labels)
    result.loss.backward()
    assert loss == pytest.approx(result.loss.item(), rel=1e-5)
    same_gradients(gradients, model, peer)


def test_a_classifier_comes_back_with_equal_scores(model: Transformer, tmp_path: Path) -> None:
    """Also one whose language head is another matrix than its embedding, which the folder does not keep."""
    texts = [row.answers[0] for row in rows_of(model, paired=False)]
    untied = model.config.model_copy(update={"tied_embeddings": False})
    other = Transformer(untied)
    other.load_state_dict({**model.state_dict(), "output.weight": model.embedding.weight.flip(0)})
    other.tokenizer = model.tokenizer
    for name, each in (("tied", model), ("untied", other)):
        peer = classifier(each, tmp_path / name)
        expected = peer(**padded(peer, texts)).logits[:, 0]
        back = RewardModel.load(tmp_path / name, torch.device("cpu"))
        torch.testing.assert_close(torch.tensor(back.scores(texts)), expected, rtol=0, atol=2e-5)
        torch.testing.assert_close(torch.tensor(RewardModel(each).scores(texts)), expected, rtol=0, atol=2e-5)


def write_rows(path: Path, count: int, scored: bool = False) -> str:
    """Answers in words of numbers: the larger of two is the better one."""
    rng, rows = random.Random(0), list[dict[str, Any]]()
    for _ in range(count):
        low, high = sorted(rng.sample(range(10), 2))
        rows.append({"prompt": "how many?", "chosen": str(high), "rejected": str(low)})
        if scored:
            rows[-1] = {"prompt": "how many?", "completion": str(low), "score": low / 10}
    write_jsonl(path, rows)
    return str(path)


def test_the_stage_learns_which_answer_is_better(tokenizer: Tokenizer, make_folder: MakeFolder, tmp_path: Path) -> None:
    base = {"checkpoint": checkpoint_of(tiny_model(tokenizer, std=0.05), tmp_path / "base")}
    parts = SHORT | {"steps": 40, "batch_answers": 8}
    pairs, scores = write_rows(tmp_path / "pairs.jsonl", 60), write_rows(tmp_path / "scores.jsonl", 60, scored=True)
    found = reward.run(RewardConfig.model_validate(parts | {"files": (pairs,), "held_out": 20}), base, make_folder("a"))
    assert found["rows"] == 40 and found["held_out_accuracy"] > 0.9
    learnt = RewardConfig.model_validate(parts | {"files": (scores,), "held_out": 20, "algorithm": "regression"})
    found = reward.run(learnt, base, make_folder("b"))
    assert found["held_out_absolute_error"] < 0.15  # guessing the mean gives 0.2
    assert not (make_folder("a").path / "checkpoint").exists()
    assert load_model(make_folder("a").path).config.heads == ("reward",)


def test_rl_earns_what_a_reward_model_gives(
    tokenizer: Tokenizer, model: Transformer, make_folder: MakeFolder, tmp_path: Path
) -> None:
    inputs = {
        "checkpoint": checkpoint_of(tiny_model(tokenizer, seed=9), tmp_path / "policy"),
        "reward_model": checkpoint_of(model, tmp_path / "judge"),
    }
    parts = SHORT | {"steps": 2, "tasks": SUMS, "prompts_per_step": 4, "group": 4, "max_new_tokens": 4}
    folder = make_folder("rl")
    rl.run(RlConfig.model_validate(parts | {"reward_model_weight": 2.0}), inputs, folder)
    rows = read_jsonl(folder.path / "trajectories.jsonl")
    given = [row["rewards"]["reward_model"] for row in rows]
    assert len(set(given)) > 8
    assert [row["reward"] for row in rows] == pytest.approx(
        [2 * value for value in given], abs=1e-6
    )  # nothing is right
    assert load_model(folder.path).config.heads == ()


def test_a_reward_model_chooses_preference_pairs(
    tokenizer: Tokenizer, model: Transformer, make_folder: MakeFolder, tmp_path: Path
) -> None:
    """Of six answers, none of them right, the one that the model gives most is chosen and the one it gives least rejected."""
    policy, judge = tiny_model(tokenizer, seed=9), RewardModel(model)
    inputs = {
        "checkpoint": checkpoint_of(policy, tmp_path / "policy"),
        "reward_model": checkpoint_of(model, tmp_path / "judge"),
    }
    parts = SHORT | {"steps": 1, "tasks": SUMS, "prompts": 4, "samples": 6, "max_new_tokens": 4, "batch_pairs": 3}
    parts |= {"pairs_per_task": 1}
    config = PreferConfig.model_validate(parts | {"pairs": {"choose": "best_worst"}})
    all_answers = sample_answers(policy, config, seed=1)
    given = dict(
        zip(map(tokens_of, all_answers), judge.scores([list(tokens_of(each)) for each in all_answers]), strict=True)
    )
    pairs = sample_pairs(policy, config, seed=1, judge=partial(judge.judge, weight=1.0)).pairs
    assert len(pairs) == 4
    for pair in pairs:
        same_task = [given[tokens_of(each)] for each in all_answers if each.task.id == pair.chosen.task.id]
        assert given[tokens_of(pair.chosen)] == pytest.approx(max(same_task), abs=1e-5)
        assert given[tokens_of(pair.rejected)] == pytest.approx(min(same_task), abs=1e-5)
    for refresh in (None, 1):
        online = PreferConfig.model_validate(parts | {"pairs": {"choose": "best_worst", "refresh": refresh}})
        assert prefer.run(online, inputs, make_folder(f"prefer-{refresh}"))["reward"] != 0
    with pytest.raises(RecipeError, match="better and worse answers, not right and wrong"):
        prefer.run(PreferConfig.model_validate(parts), inputs, make_folder("wrong"))


def tokens_of(episode: Episode) -> tuple[int, ...]:
    return tuple(episode.tokens())


def test_an_episode_is_judged_at_what_the_policy_wrote_last(model: Transformer) -> None:
    """What the environment says afterwards is not read; a failed episode has no reward to add to."""
    one = episode([("prompt", [2, 40, 50]), ("assistant", [60, 61]), ("tool", [70, 71])], reward=1.0)
    (judged,) = RewardModel(model).judge([one], lambda: None, weight=0.5)
    with torch.no_grad():
        expected = float(
            model.hidden(torch.tensor([[2, 40, 50, 60, 61]]))[0, -1] @ model.get_parameter("heads.reward.weight")[0]
        )
    assert judged.score.rewards["reward_model"] == pytest.approx(expected, abs=1e-5)
    assert judged.score.reward == pytest.approx(1 + 0.5 * expected, abs=1e-5)
    failed = replace(one, score=replace(one.score, error="it broke"))
    assert RewardModel(model).judge([failed], lambda: None, weight=0.5) == [failed]


def test_what_is_wrong_is_said(tokenizer: Tokenizer, make_folder: MakeFolder, tmp_path: Path) -> None:
    model = tiny_model(tokenizer)
    with pytest.raises(ArtifactError, match="the model has no reward head"):
        RewardModel(copy.deepcopy(model))
    base = {"checkpoint": checkpoint_of(model, tmp_path / "base")}
    files = (write_rows(tmp_path / "few.jsonl", 3),)
    with pytest.raises(CheckFailed, match="only 3 rows to learn from, a step needs 16"):
        reward.run(RewardConfig.model_validate(SHORT | {"steps": 1, "files": files}), base, make_folder("few"))
    write_jsonl(tmp_path / "bad.jsonl", [{"prompt": "a", "completion": "b", "score": "good"}])
    with pytest.raises(DataError, match=r"bad.jsonl.*1: `score` is 'good'"):
        read_reward_rows((str(tmp_path / "bad.jsonl"),), chat_format(model), 64, "error", paired=False)
