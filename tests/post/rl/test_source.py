"""Batches over several updates, dynamic sampling, solved tasks, shaped rewards, limits and temperatures that change."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch

from ingot.envs.episode import Episode, Score
from ingot.envs.task import Task
from ingot.model.lora import is_adapter
from ingot.model.lora_config import LoraConfig
from ingot.model.transformer import Transformer
from ingot.post.algorithm import Samples
from ingot.post.algorithms.grpo import Grpo
from ingot.post.rewards.reward_shaping import LengthRewardConfig, OverlongConfig, TokenBudgetConfig
from ingot.post.rl import stage as rl
from ingot.post.rl.config import RlConfig
from ingot.post.rl.objective import PolicyOptimization
from ingot.post.rl.pipeline import SampleBatch
from ingot.post.rl.source import RlSource
from ingot.post.rl.state import HeldBatch, read_batch, write_batch
from ingot.post.rl.trajectories import describe
from ingot.tokens.chat import ChatFormat, Message
from ingot.tokens.tokenizer import Tokenizer
from ingot.train.loop import Trainer
from ingot.train.lora import adapt
from ingot.workspace.stage import StageFolder
from tests.making.rows import write_rows
from tests.post.making import SUMS, checkpoint_of, drawn, engine_of, episode, nudged, tiny_model
from tests.train.toy import run_without_final_checkpoint


class EvenLast(Grpo):
    """A reward that an untrained model gets half of the time."""

    def reward(self, episode: Episode) -> float:
        return float(episode.tokens()[-1] % 2 == 0)


def make_config(**options: Any) -> RlConfig:
    usual: dict[str, Any] = {"steps": 8, "sequence_length": 64, "tasks": SUMS, "prompts_per_step": 2, "group": 3}
    usual |= {"max_new_tokens": 4, "algorithm": EvenLast(), "precision": "float32", "device": "cpu"}
    return RlConfig.model_validate(usual | {"optimizer": {"lr": 1e-2}} | options)


def make_source(tokenizer: Tokenizer, folder: StageFolder, **options: Any) -> RlSource:
    return RlSource(tiny_model(tokenizer), make_config(**options), folder)


def texts(source: RlSource, step: int) -> list[tuple[int, ...]]:
    return [tuple(each.tokens) for each in source.update(step)[0]]


def test_a_batch_is_served_over_its_updates(tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder]) -> None:
    """Three mini-batches are the batch; a second epoch mixes its tasks anew; old log-probabilities are the trainer's."""
    source = make_source(tokenizer, make_folder("rl"), mini_batches=3, epochs=2)
    first = [texts(source, step) for step in range(3)]
    held = source.held
    assert held is not None and len(held.groups) == 6
    with torch.no_grad():
        for parameter in source.model.parameters():
            parameter.add_(0.01)  # an update
    second = [texts(source, step) for step in range(3, 6)]
    assert source.held is held
    assert sorted(chain(*first)) == sorted(chain(*second)) and first != second
    assert [len(each) for each in first] == [6, 6, 6]
    assert source.update(5)[1]["staleness"] == 5.0
    for group in held.groups:
        for each in group:
            old, sampled = each.streams["old_logprob"], each.streams["sampled_logprob"]
            assert old == pytest.approx(sampled, abs=1e-4) and min(old) < 0
    assert texts(source, 6) != first[0] and source.held is not held


def test_one_update_has_no_old_policy_of_its_own(
    tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder]
) -> None:
    source = make_source(tokenizer, make_folder("rl"))
    streams = source.update(0)[0][0].streams
    assert "old_logprob" not in streams
    assert not any("old_logprob" in term.needs for term in EvenLast().terms(source.model, source.config))


def test_clips_act_in_later_updates_and_only_the_first_is_checked(
    tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder]
) -> None:
    folder = make_folder("rl")
    source = make_source(tokenizer, folder, epochs=4, steps=8, optimizer={"lr": 3e-2})
    terms = EvenLast().terms(source.model, source.config)
    run_without_final_checkpoint(
        Trainer(source.model, terms, source, source.config, folder, after_step=source.check_ratio)
    )
    rows = folder.metrics.read()
    assert [row["clip_share"] > 0 for row in rows][0::4] == [False, False]
    assert all(rows[step]["clip_share"] > 0.05 and rows[step]["sampler_divergence"] > 1e-3 for step in (3, 7))


def test_held_samples_come_back_from_disk(
    tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder], tmp_path: Path
) -> None:
    source = make_source(tokenizer, make_folder("rl"), mini_batches=2)
    source.update(0)
    held = source.held
    assert isinstance(held, HeldBatch)
    write_batch(tmp_path / "batch.npz", held)
    back = read_batch(tmp_path / "batch.npz")
    assert (back.number, back.version, back.metrics) == (held.number, held.version, held.metrics)
    for ours, theirs in zip(held.groups, back.groups, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            assert one.tokens == other.tokens
            for name, values in one.streams.items():
                assert torch.tensor(values, dtype=torch.float32).tolist() == other.streams[name]


@pytest.mark.parametrize(("keep", "files"), [(2, 4), (6, 7)])
def test_every_checkpoint_that_is_kept_has_its_samples(
    keep: int, files: int, tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder]
) -> None:
    """The newest `keep` ones while one more is written: a run can go back to each of them."""
    options = {"mini_batches": 2, "steps": 20, "checkpoints": {"every": 1, "keep": keep}}
    source = make_source(tokenizer, make_folder("rl"), **options, max_new_tokens=1, prompts_per_step=1)
    states = []
    for step in range(0, 20, 2):
        source.update(step)
        states.append(source.state())
    names = [f"batch-{number:08d}.npz" for number in range(10 - files, 10)]
    assert sorted(path.name for path in source.saved.folder.iterdir()) == names
    for state in states[-keep - 1 :]:
        source.restore(state)
        assert source.held is not None and source.held.number == state["batch"]


def test_samples_of_an_earlier_run_are_not_taken_for_those_of_this_one(
    tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder]
) -> None:
    """A batch that is collected again, after a kill, may hold other samples: what is saved is what is trained on."""
    first = make_source(tokenizer, make_folder("rl"), mini_batches=2)
    first.update(0)
    first.state()
    again = RlSource(nudged(tiny_model(tokenizer), 0.5, seed=3), make_config(mini_batches=2), make_folder("rl"))
    again.restore({})
    trained = texts(again, 0)
    assert again.held is not None and first.held is not None and trained != texts(first, 0)
    other = make_source(tokenizer, make_folder("rl"), mini_batches=2)
    other.restore(json.loads(json.dumps(again.state())))
    assert other.held is not None and texts(other, 0) == trained


def scripted(tokenizer: Tokenizer, folder: StageFolder, script: Sequence[str], **options: Any) -> RlSource:
    """Answers of given worth: which tasks are mixed, solved or hopeless is decided by their order of appearance."""
    source = RlSource(tiny_model(tokenizer), make_config(algorithm=Grpo(), **options), folder)
    group = source.config.group

    def sample(tasks: Sequence[Task], batch: SampleBatch, attempt: int = 0, kinds: Any = None) -> list[Episode]:
        made = []
        for index, task in enumerate(tasks):
            kind = script[(attempt * len(script) // 2 + index // group) % len(script)]
            reward = {"mixed": float(index % group == 0), "solved": 1.0, "hopeless": 0.0}[kind]
            each = episode([("prompt", [5, 6]), ("assistant", [7, 8])], reward)
            made.append(Episode(task, each.segments, [], Score(reward, reward == 1, True)))
        return made

    engine_of(source).sample = sample  # type: ignore[method-assign]
    return source


@pytest.mark.parametrize(("ask", "asked"), [("batch", 8.0), ("missing", 6.0)])
def test_dynamic_sampling_fills_the_batch_with_tasks_that_differ(
    tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder], ask: str, asked: float
) -> None:
    options = {"prompts_per_step": 4, "dynamic_sampling": {"ask": ask}}
    script = ["mixed", "solved", "hopeless", "mixed", "mixed", "mixed", "solved", "mixed"]
    source = scripted(tokenizer, make_folder("rl"), script, **options)
    batch = drawn(source, 0)
    assert [each.score.reward for each in batch.episodes] == [1.0, 0.0, 0.0] * 4
    assert batch.metrics["sampled_groups"] == asked
    plain = drawn(scripted(tokenizer, make_folder("plain"), script, prompts_per_step=4), 0).episodes
    assert len({each.task.id for each in plain}) == 4 and sum(each.score.reward for each in plain) == 5


def test_dynamic_sampling_ends(tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder]) -> None:
    """No task ever differs: after so many rounds the batch is filled with such tasks."""
    source = scripted(tokenizer, make_folder("rl"), ["solved", "hopeless"], dynamic_sampling={"rounds": 3})
    batch = drawn(source, 0)
    assert (len(batch.episodes), batch.metrics["sampled_groups"]) == (6, 6.0)


def test_solved_tasks_are_not_asked_again(tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder]) -> None:
    source = scripted(tokenizer, make_folder("rl"), ["solved", "mixed"], exclude_solved=0.875, prompts_per_step=4)
    first = [each.task.id for each in drawn(source, 0).episodes][::3]
    assert source.choice.solved == {first[0], first[2]}
    assert not source.choice.solved & {task.id for task in engine_of(source).choose(1, 0, 4)}
    again = scripted(tokenizer, make_folder("again"), ["solved", "mixed"], exclude_solved=0.875, prompts_per_step=4)
    again.restore(json.loads(json.dumps(source.state())))
    known = set(again.choice.solved)
    assert known == source.choice.solved
    assert not known & {task.id for task in engine_of(again).choose(9, 0, 4)}


def shaped(algorithm: PolicyOptimization, lengths: Sequence[int], rewards: Sequence[float], limit: int) -> list[Any]:
    made = [
        episode([("prompt", [5]), ("assistant", [7] * length)], reward)
        for length, reward in zip(lengths, rewards, strict=True)
    ]
    rows: Callable[[], list[list[float]]] = list
    return algorithm.rewards(Samples(made, len(made), rows, rows, rows, limit))


def test_penalties_of_length() -> None:
    """DAPO's penalty at the paper's numbers; Kimi k1.5's reward; a budget by kind of task."""
    paper = Grpo(overlong=OverlongConfig(buffer=4096, factor=1.0))
    lengths = [100, 16_384, 18_432, 20_480]
    assert shaped(paper, lengths, [1.0] * 4, 20_480) == [1.0, 1.0, 0.5, 0.0]
    assert shaped(Grpo(overlong=OverlongConfig()), lengths, [1.0] * 4, 20_480) == [1.0, 1.0, 0.75, 0.5]
    direct = Grpo(length_reward=LengthRewardConfig(thinking=7.0, direct=0.4))  # the tasks here are answered directly
    assert shaped(direct, [10, 20, 30, 30], [1.0, 1.0, 1.0, 0.0], 99) == pytest.approx([1.2, 1.0, 0.8, -0.2])
    budget = Grpo(token_budget=TokenBudgetConfig(tokens={"no_think": 20}, penalty=0.5))
    assert shaped(budget, [10, 20, 21], [1.0, 0.0, 1.0], 99) == [1.0, 0.0, -0.5]


def test_a_cut_answer_earns_a_share() -> None:
    """Of its verifier's reward, before penalties; what has ended, and what the filter of tasks sees, is as it was."""
    whole = episode([("prompt", [5]), ("assistant", [7] * 8)], 0.5)
    cut = dataclasses.replace(whole, ended="tokens")
    algorithm = Grpo(truncated_factor=0.4, overlong=OverlongConfig(buffer=4, factor=0.5))
    rows: Callable[[], list[list[float]]] = list
    made = [whole, cut, cut, whole]
    assert algorithm.rewards(Samples(made, 2, rows, rows, rows, 99)) == pytest.approx([0.5, 0.2, 0.2, 0.5])
    assert algorithm.rewards(Samples(made, 2, rows, rows, rows, 8)) == pytest.approx([0.0, -0.3, -0.3, 0.0])
    assert algorithm.reward(cut) == 0.5


def test_a_budget_cuts_and_is_paid_for(tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder]) -> None:
    """No answer is longer; one that was cut there loses the penalty, one that ended there earns its reward."""
    budget = TokenBudgetConfig(tokens={"no_think": 2}, penalty=0.75)
    algorithm = EvenLast(token_budget=budget)
    source = make_source(tokenizer, make_folder("rl"), max_new_tokens=9, algorithm=algorithm)
    episodes = drawn(source, 0).episodes
    assert {each.sampled_count for each in episodes} == {2} and describe(episodes)["truncated_share"] == 1
    for each in episodes[::2]:
        each.segments[-1].nodes[-1] = dataclasses.replace(each.nodes[-1], ended="stop")
    rows: Callable[[], list[list[float]]] = list
    earned = algorithm.rewards(Samples(episodes, 3, rows, rows, rows, 9))
    assert earned[1::2] == [-0.75] * 3 and earned[::2] == [algorithm.reward(each) for each in episodes[::2]]


def test_the_limit_rises_and_the_temperature_falls(
    tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder]
) -> None:
    """Both change with the step, and the trainer follows: the ratio to the sampler stays 1, or the run would stop."""
    folder = make_folder("rl")
    options = {"steps": 5, "temperature": 1.4, "temperature_end": 0.6, "longer_from": {2: 9}, "max_new_tokens": 2}
    source = make_source(tokenizer, folder, **options)
    trainer = Trainer(
        source.model,
        EvenLast().terms(source.model, source.config),
        source,
        source.config,
        folder,
        after_step=source.check_ratio,
        temperature=1.4,
    )
    run_without_final_checkpoint(trainer)
    lengths = [row["response_length"] for row in folder.metrics.read()]
    assert max(lengths[:2]) <= 2 < min(lengths[2:])
    assert trainer.objective.temperature == pytest.approx(0.6)


def test_kept_conversations_are_learnt_beside(
    tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder], tmp_path: Path
) -> None:
    """With every reward equal RL teaches nothing; what the run learns is the conversation that it keeps."""
    rows = [{"messages": [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]}] * 3
    path = write_rows(tmp_path / "kept.jsonl", rows)
    config = make_config(algorithm=Grpo(), steps=6, ptx={"weight": 0.5, "conversations": 2, "files": [str(path)]})
    folder = make_folder("rl")
    rl.run(config, {"checkpoint": checkpoint_of(tiny_model(tokenizer), tmp_path / "base")}, folder)
    losses = [row["ptx"] for row in folder.metrics.read()]
    assert losses[-1] < 0.5 * losses[0]
    assert folder.metrics.read()[0]["loss"] == pytest.approx(0.5 * losses[0], abs=1e-6)


@pytest.mark.parametrize("asked", [{"temperature": 0.7}, {"temperature": 1.4, "temperature_end": 0.6}], ids=str)
def test_kept_conversations_have_temperature_one(
    tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder], tmp_path: Path, asked: dict[str, float]
) -> None:
    """Rewards are equal, so the loss is λ · −mean log p at temperature 1: its value and its gradient are plain torch's."""
    messages = [Message("user", "2 + 2?"), Message("assistant", "4 and no more")]
    path = tmp_path / "kept.jsonl"
    row = {"messages": [each.to_dict() for each in messages], "thinking": False}
    write_rows(path, [row])
    model = tiny_model(tokenizer)
    tokens, mask = map(torch.tensor, ChatFormat(tokenizer).conversation(messages, thinking=False))
    hidden = model.hidden(tokens[None], torch.arange(len(tokens))[None], None)
    logprobs = model.head(hidden)[0, :-1].double().log_softmax(dim=-1)
    wanted = -(logprobs.gather(1, tokens[1:, None])[:, 0] * mask[1:]).sum() / mask.sum()
    (0.3 * wanted).backward()
    expected = {name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None}
    kept = {"ptx": {"weight": 0.3, "conversations": 1, "files": [str(path)]}, "optimizer": {"lr": 1e-12, "clip": 1e9}}
    config = make_config(algorithm=Grpo(), steps=4, **kept, **asked)
    folder = make_folder("rl")
    stage = rl.Rl(config, {"checkpoint": checkpoint_of(model, tmp_path / "base")}, folder)
    source = stage.source()
    options: dict[str, Any] = {"after_step": stage.after_step, "temperature": stage.temperature}
    trainer = Trainer(stage.model, stage.terms(), source, config, folder, **options)
    compared = []

    def compare(optimizer: object, arguments: object, keywords: object) -> None:
        for name, parameter in stage.model.named_parameters():
            assert parameter.grad is not None
            assert torch.allclose(parameter.grad, expected[name], atol=1e-5 * float(expected[name].abs().max())), name
        compared.append(trainer.objective.temperature)

    trainer.optimizer.register_step_pre_hook(compare)
    run_without_final_checkpoint(trainer)
    assert compared == pytest.approx([config.temperature_at(step) for step in range(4)])
    for metric, factor in (("ptx", 1.0), ("loss", 0.3)):
        assert [row[metric] for row in folder.metrics.read()] == pytest.approx([factor * wanted.item()] * 4, rel=1e-5)


def test_the_reference_follows_the_policy(tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder]) -> None:
    algorithm = EvenLast(reference_weight=0.1, reference_every=4)
    source = make_source(tokenizer, make_folder("rl"), algorithm=algorithm)
    assert source.scores.frozen is not None
    start = source.scores.frozen.model.embedding.weight.clone()
    source.model.load_state_dict(nudged(source.model, 0.1, seed=5).state_dict())
    source.update(3)
    assert torch.equal(source.scores.frozen.model.embedding.weight, start)
    source.update(4)
    assert torch.equal(source.scores.frozen.model.embedding.weight, source.model.embedding.weight)
    state = source.state()
    other = make_source(tokenizer, make_folder("rl"), algorithm=algorithm)
    other.restore(state)
    assert other.scores.frozen is not None
    assert torch.equal(other.scores.frozen.model.embedding.weight, source.model.embedding.weight)


@pytest.mark.parametrize(
    "algorithm",
    [
        pytest.param(EvenLast(), id="a copy"),
        pytest.param(EvenLast(reference_weight=0.1), id="the reference"),
        pytest.param(EvenLast(reference_weight=0.1, reference_every=2), id="a reference that is replaced"),
    ],
)
def test_the_divergence_from_the_start(
    algorithm: EvenLast, tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder]
) -> None:
    """None at first; then k3 of the policy as it is and the model that the stage began with, by passes in float64."""
    source = make_source(tokenizer, make_folder("rl"), algorithm=algorithm, record_every=1)
    start = copy.deepcopy(source.model).double()
    assert source.update(0)[1]["start_divergence"] == pytest.approx(0.0, abs=1e-9)
    source.model.load_state_dict(nudged(source.model, 0.1, seed=5).state_dict())
    assert_divergence(source, start)


def assert_divergence(source: RlSource, start: Transformer) -> None:
    sequences, metrics = source.update(3)
    policy = copy.deepcopy(source.model).double()
    found = []
    for each in sequences:
        tokens, mask = torch.tensor([each.tokens]), torch.tensor(each.streams["response_mask"])[1:] > 0
        logs = [
            model(tokens[:, :-1])[0].log_softmax(-1).gather(-1, tokens[0, 1:, None])[mask, 0]
            for model in (policy, start)
        ]
        found.append(logs[0] - logs[1])
    gap = torch.cat(found)
    wanted = float((torch.exp(-gap) - 1 + gap).mean().detach())
    assert wanted > 1e-4 and metrics["start_divergence"] == pytest.approx(wanted, rel=1e-4)


def test_the_divergence_from_the_start_of_adapters(
    tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder], tmp_path: Path
) -> None:
    """The start is the model without them: no copy is kept."""
    model = tiny_model(tokenizer)
    start = copy.deepcopy(model).double()
    adapt(model, None, LoraConfig(rank=2), tmp_path, seed=1)
    source = RlSource(model, make_config(record_every=1), make_folder("rl"))
    assert source.start is not None and source.start.kept is None
    noise = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if is_adapter(name):
                parameter.add_(torch.empty(parameter.shape).normal_(0.0, 0.3, generator=noise))
    assert_divergence(source, start)


def test_what_answers_look_like() -> None:
    """Lengths by outcome, and the share of answers that a limit cut."""

    def answer(length: int, reward: float) -> Episode:
        return episode([("user", [1]), ("assistant", [2] * length)], reward)

    cut = dataclasses.replace(answer(2, 0.0), ended="tokens")
    found = describe([answer(4, 1.0), answer(2, 1.0), cut, answer(1, 0.0)])
    assert found["response_length"] == 2.25 and found["truncated_share"] == 0.25
    assert (found["response_length/right"], found["response_length/wrong"]) == (3.0, 1.5)
    assert "response_length/wrong" not in describe([answer(1, 1.0)]) and "answers_too_slow" not in found
    slow = answer(1, 0.0)  # the verifier's word on it: it earns nothing, and is counted
    slow.score = dataclasses.replace(slow.score, detail={"answers_too_slow": 1.0, "answered": 1.0})
    assert describe([answer(1, 1.0), slow, slow])["answers_too_slow"] == 2


def test_cut_answers_are_masked_if_so_wished(tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder]) -> None:
    """An untrained model never ends its answer: every one is cut."""
    for masked in (False, True):
        source = make_source(tokenizer, make_folder(str(masked)), algorithm=EvenLast(mask_truncated=masked))
        sums = [sum(each.streams["response_mask"]) for each in source.update(0)[0]]
        assert (max(sums) == 0) is masked
