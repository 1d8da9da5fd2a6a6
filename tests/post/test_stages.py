"""The four stages from checkpoint folder to checkpoint folder, each doing what it is for, on a world of small sums."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from ingot.checkpoints.checkpoint import load_model
from ingot.envs.mix import TaskMix
from ingot.envs.rollout.episode_run import Limits
from ingot.envs.rollout.rollout import rollout
from ingot.inference.engine import Engine
from ingot.inference.sampling import Sampling
from ingot.optim.config import AdamWConfig
from ingot.post import prefer, sft
from ingot.post.data.pairs.own_pairs import sample_pairs
from ingot.post.distill import stage as distill
from ingot.post.distill.config import DistillConfig
from ingot.post.policy import chat_format
from ingot.post.prefer_config import PreferConfig
from ingot.post.rl import stage as rl
from ingot.post.rl.config import RlConfig
from ingot.post.sft_config import SftConfig
from ingot.post.synthesis import stage as synthesize
from ingot.post.synthesis.config import SynthesizeConfig
from ingot.tokens.chat import Message
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.errors import CheckFailed, DataError, RecipeError
from ingot.workspace.files import read_jsonl
from ingot.workspace.stage import StageFolder
from tests.making.rows import write_rows
from tests.post.making import CONTEXT, SUMS, checkpoint_of, nudged, tiny_model

MakeFolder = Callable[[str], StageFolder]
SHORT = {"sequence_length": 64, "precision": "float32", "device": "cpu"}


def reward_of(path: Path) -> float:
    """The share of right answers, eight samples of each of sixty questions."""
    model, mix = load_model(path), TaskMix(SUMS)
    tasks = [task for task in mix.generate(5, 60, "train") for _ in range(8)]
    engine = Engine(model, slots=len(tasks), length=64)
    done = rollout(tasks, engine, chat_format(model), mix.kinds, limits=Limits(4, 64))
    return sum(each.score.reward for each in done) / len(done)


def test_sft_learns_a_file_by_heart(tokenizer: Tokenizer, make_folder: MakeFolder, tmp_path: Path) -> None:
    """Eight conversations over and over: the loss goes to zero, and the model then says them."""
    facts = {f"Say {word}": word[::-1] for word in ("ab", "cd", "ef", "gh", "ij", "kl", "mn", "op")}
    path = tmp_path / "facts.jsonl"
    rows = [
        {"messages": [{"role": "user", "content": q}, {"role": "assistant", "content": a}], "thinking": False}
        for q, a in facts.items()
    ]
    write_rows(path, rows)
    base = checkpoint_of(tiny_model(tokenizer, std=0.05), tmp_path / "base")
    config = SftConfig.model_validate(
        SHORT | {"steps": 60, "files": (str(path),), "tasks": None, "batch_conversations": 8, "optimizer": {"lr": 1e-2}}
    )
    folder = make_folder("sft")
    summary = sft.run(config, {"checkpoint": base}, folder)
    losses = [row["loss"] for row in folder.metrics.read()]
    assert summary["conversations"] == 8
    assert losses[0] > 4 and losses[-1] == summary["loss"] < 0.05
    model = load_model(folder.path)
    chat = chat_format(model)
    prompts = [chat.prompt([Message("user", question)], thinking=False) for question in facts]
    greedy = Sampling(max_new_tokens=6, temperature=0, stop_tokens=(tokenizer.special["<|im_end|>"],))
    said = Engine(model, slots=8, length=64).complete(prompts, [greedy] * len(prompts))
    assert [chat.parse(each.tokens).content for each in said] == list(facts.values())


def test_sft_on_tasks_learns_to_answer(schooled: StageFolder) -> None:
    rows = schooled.metrics.read()
    assert rows[0]["loss"] > 5 and rows[-1]["loss"] < 1
    assert reward_of(schooled.path) > 0.2
    assert reward_of(schooled.path.parent / "base") == 0


def test_sft_without_conversations_is_refused(tokenizer: Tokenizer, make_folder: MakeFolder, tmp_path: Path) -> None:
    base = checkpoint_of(tiny_model(tokenizer), tmp_path / "base")
    config = SftConfig.model_validate(SHORT | {"steps": 1, "tasks": None})
    with pytest.raises(RecipeError, match="sft: the stage has no conversations"):
        sft.run(config, {"checkpoint": base}, make_folder("sft"))
    with pytest.raises(DataError, match=r"nowhere\.jsonl: there is no such file"):
        sft.run(config.model_copy(update={"files": ("nowhere.jsonl",)}), {"checkpoint": base}, make_folder("sft"))


@pytest.mark.slow
def test_a_round_of_rejection_sampling_raises_the_reward(schooled: StageFolder, make_folder: MakeFolder) -> None:
    """The model learns from its own right answers alone, and then gives more of them."""
    made, folder = make_folder("synthesize"), make_folder("again")
    sums = {"task": "no_think", "operations": ["sum"], "largest": 5}
    entry = {"environment": sums, "count": 60, "samples": 16, "max_length": 64}
    config = SynthesizeConfig.model_validate(
        {"environments": [entry], "temperature": 1.0, "top_p": 1.0, "max_tokens": 4}
    )
    found = synthesize.run(config, {"checkpoint": schooled.path}, made)["environments"]["no_think"]
    before = reward_of(schooled.path)
    assert 0.3 < found["pass_rate"] < 0.6, "about half of its answers are wrong, and are left out"
    again = SftConfig.model_validate(SHORT | {"steps": 50, "tasks": None, "optimizer": {"lr": 3e-3}})
    sft.run(again, {"checkpoint": schooled.path, "conversations": made.artifact("conversations")}, folder)
    assert reward_of(folder.path) > before + 0.1


def prefer_config(**options: object) -> PreferConfig:
    parts = {"steps": 25, "tasks": SUMS, "prompts": 120, "samples": 4, "max_new_tokens": 4, "pairs_per_task": 1}
    return PreferConfig.model_validate(SHORT | parts | {"optimizer": {"lr": 2e-3}} | options)


@pytest.mark.slow
def test_prefer_prefers_right_answers(schooled: StageFolder, make_folder: MakeFolder) -> None:
    """The first preference loss is log 2 (policy and reference are one); then margins and the reward grow."""
    folder = make_folder("prefer")
    summary = prefer.run(prefer_config(), {"checkpoint": schooled.path}, folder)
    rows = folder.metrics.read()
    assert rows[0]["preference"] == pytest.approx(math.log(2), abs=1e-5)
    assert abs(rows[0]["margin"]) < 1e-4
    assert sum(row["preference"] for row in rows[-5:]) / 5 < 0.5
    assert sum(row["preference_accuracy"] for row in rows[-5:]) / 5 > 0.7
    assert summary["margin"] > 0.5
    assert len(read_jsonl(folder.path / "pairs.jsonl")) == summary["pairs"] >= 16
    assert reward_of(folder.path) > reward_of(schooled.path)


def test_pairs_come_from_one_task_each_and_no_more_than_asked_for(schooled: StageFolder) -> None:
    """More prompts than the world has questions: a task that is drawn twice still gives one pair."""
    model = load_model(schooled.path)
    config = prefer_config(prompts=900, samples=2)
    own = sample_pairs(model, config, seed=1)
    pairs, right = own.pairs, own.reward
    assert len({task.id for task in TaskMix(SUMS).generate(1, config.prompts, "train")}) < config.prompts
    assert 0.2 < right < 0.6
    assert max(Counter(pair.chosen.task.id for pair in pairs).values()) == 1
    for pair in pairs:
        assert pair.chosen.task.id == pair.rejected.task.id
        assert (pair.chosen.score.reward, pair.rejected.score.reward) == (1, 0)


def test_prefer_with_too_few_pairs_is_refused(tokenizer: Tokenizer, make_folder: MakeFolder, tmp_path: Path) -> None:
    base = checkpoint_of(tiny_model(tokenizer), tmp_path / "base")
    with pytest.raises(CheckFailed, match=r"(?s)only 0 preference pairs, a step needs 16.*the answers earned 0 on"):
        prefer.run(prefer_config(prompts=4), {"checkpoint": base}, make_folder("prefer"))


@pytest.mark.slow
def test_rl_raises_the_reward(schooled: StageFolder, make_folder: MakeFolder) -> None:
    folder = make_folder("rl")
    parts = {"steps": 45, "tasks": SUMS, "prompts_per_step": 16, "group": 8, "max_new_tokens": 4}
    config = RlConfig.model_validate(SHORT | parts | {"optimizer": AdamWConfig(lr=3e-3)})
    summary = rl.run(config, {"checkpoint": schooled.path}, folder)
    rows = folder.metrics.read()
    assert summary["last_reward"] > summary["first_reward"] + 0.08
    assert reward_of(folder.path) > reward_of(schooled.path) + 0.06
    assert all(abs(row["ratio_mean"] - 1) < 1e-4 and row["sampler_divergence"] < 1e-6 for row in rows)
    assert {row["step"] for row in read_jsonl(folder.path / "trajectories.jsonl")} == {0, 10, 20, 30, 40}


def test_rl_measures_the_divergence_from_its_input_checkpoint(schooled: StageFolder, make_folder: MakeFolder) -> None:
    """Zero at the first step, also at a temperature; not any more when the policy has moved."""
    folder = make_folder("rl")
    parts = {"steps": 4, "tasks": SUMS, "prompts_per_step": 8, "group": 4, "max_new_tokens": 4}
    config = RlConfig.model_validate(
        SHORT
        | parts
        | {"optimizer": {"lr": 1e-2}, "algorithm": {"algorithm": "grpo", "reference_weight": 0.1}, "temperature": 0.7}
    )
    rl.run(config, {"checkpoint": schooled.path}, folder)
    divergences = [row["reference_divergence"] for row in folder.metrics.read()]
    assert abs(divergences[0]) < 1e-6
    assert min(divergences[1:]) > 1e-4


@pytest.mark.slow
def test_distillation_brings_a_student_back_to_its_teacher(
    schooled: StageFolder, make_folder: MakeFolder, tmp_path: Path
) -> None:
    """The student is the teacher after an accident; a divergence from the teacher and lost reward are undone."""
    teacher = load_model(schooled.path)
    student = checkpoint_of(nudged(teacher, 0.1, seed=3), tmp_path / "student")
    folder = make_folder("distill")
    parts = {"steps": 40, "tasks": SUMS, "prompts_per_step": 16, "group": 2, "max_new_tokens": 4}
    config = DistillConfig.model_validate(SHORT | parts | {"optimizer": AdamWConfig(lr=2e-3)})
    summary = distill.run(config, {"checkpoint": student, "teacher": schooled.path}, folder)
    assert summary["first_divergence"] > 0.5
    assert summary["last_divergence"] < 0.2 * summary["first_divergence"]
    assert reward_of(folder.path) > reward_of(student) + 0.1
    assert (folder.path / "trajectories.jsonl").exists()


def test_the_context_grows_with_what_is_learnt(
    tokenizer: Tokenizer, make_folder: MakeFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result was cut where its beginning ended, in chat, serve and export; short texts in long rows leave it as it is."""
    path = tmp_path / "talk.jsonl"
    checkpoint = checkpoint_of(tiny_model(tokenizer), tmp_path / "base")
    contexts, said = [], list[str]()
    for words in (150, 20):
        row = {"prompt": "1 " * words, "completion": "2", "thinking": False}
        write_rows(path, [row] * 2)
        folder = make_folder(str(words))
        monkeypatch.setattr(folder.progress, "say", said.append)
        config = SftConfig(steps=1, sequence_length=500, files=(str(path),), batch_conversations=2, device="cpu")
        sft.run(config, {"checkpoint": checkpoint}, folder)
        contexts.append(load_model(folder.path).config.context)
    assert contexts[1] == CONTEXT < 150 < contexts[0] <= 500
    (line,) = (each for each in said if "context" in each)
    assert f"a context of {CONTEXT:,}: the result's is {contexts[0]:,};" in line
    rl_config = RlConfig(
        steps=1, sequence_length=200, tasks=SUMS, max_new_tokens=2, prompts_per_step=1, group=2, device="cpu"
    )
    rl.run(rl_config, {"checkpoint": checkpoint}, make_folder("rl"))
    assert load_model(make_folder("rl").path).config.context == 200
