"""Sampler and trainer compute the same probabilities at every step, and a run in which they do not is stopped.

The learning rate is as good as zero: whatever moves is not the policy.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from ingot.envs.config import TaskMixConfig
from ingot.envs.episode import Episode, Node, Segment
from ingot.envs.task import Task
from ingot.envs.tasks.calculator import Calculator
from ingot.inference.engine import Engine
from ingot.inference.quantised import pack
from ingot.inference.quantised.layers import Float8Linear
from ingot.inference.sampling import Sampling
from ingot.optim.config import AdamWConfig
from ingot.post.algorithms.grpo import Grpo
from ingot.post.rl.checks.ratio import RATIO_TOLERANCE
from ingot.post.rl.config import RlConfig
from ingot.post.rl.engine_sampler import EngineSampler
from ingot.post.rl.pipeline import SampleBatch
from ingot.post.rl.source import RlSource
from ingot.post.samplers.task_stream import step_seed
from ingot.tokens.chat import ChatFormat, Message, ToolCall
from ingot.tokens.tokenizer import Tokenizer
from ingot.train import float8 as train_float8
from ingot.train.loop import Trainer
from ingot.train.losses.policy_gradient import PolicyGradient
from ingot.workspace.errors import CheckFailed
from ingot.workspace.stage import StageFolder
from tests.envs.script import Reply, Script
from tests.making.rows import read_rows
from tests.post.making import CONTEXT, SUMS, engine_of, nudged, tiny_model
from tests.slow import first_fast
from tests.train.toy import TIMES

STILL = AdamWConfig(lr=1e-12, weight_decay=0.0)


class EvenLast(Grpo):
    """An untrained model earns nothing on tasks; this reward it gets half of the time, so that there is a gradient."""

    def reward(self, episode: Episode) -> float:
        return float(episode.tokens()[-1] % 2 == 0)


class Never(Grpo):
    def reward(self, episode: Episode) -> float:
        return 0.0


SMALL = ("arithmetic", "calculator", "no_think", "small_talk", "strings")


def make_config(**options: object) -> RlConfig:
    parts: dict[str, object] = {
        "steps": 4,
        "sequence_length": CONTEXT,
        "tasks": SUMS,
        "prompts_per_step": 6,
        "group": 4,
        "max_new_tokens": 12,
        "algorithm": EvenLast(),
        "optimizer": STILL,
        "precision": "float32",
        "device": "cpu",
        "pass_all": True,
        "measure_start": False,
        "canary": None,
    }
    return RlConfig.model_validate(parts | options)


def make_trainer(source: RlSource, temperature: float = 1.0) -> Trainer:
    return Trainer(
        source.model,
        [PolicyGradient()],
        source,
        source.config,
        source.folder,
        after_step=source.check_ratio,
        temperature=temperature,
    )


@pytest.mark.parametrize(
    ("learning_rate", "temperature", "micro_batch_tokens"),
    first_fast([(1e-2, 1.3, 300), (1e-12, 0.7, 10_000), (1e-12, 1.0, 300)]),
)
def test_the_ratio_stays_one(
    tokenizer: Tokenizer,
    make_folder: Callable[[str], StageFolder],
    learning_rate: float,
    temperature: float,
    micro_batch_tokens: int,
) -> None:
    """All small task kinds, several steps; also with a real learning rate, because each step samples from its own weights."""
    config = make_config(
        tasks=TaskMixConfig(weights=dict.fromkeys(SMALL, 1.0)),
        sequence_length=400,
        optimizer={"lr": learning_rate},
        temperature=temperature,
        micro_batch_tokens=micro_batch_tokens,
    )
    folder = make_folder("rl")
    source = RlSource(tiny_model(tokenizer), config, folder)
    make_trainer(source, temperature).run()
    rows = folder.metrics.read()
    assert len(rows) == config.steps
    assert all(abs(row["ratio_mean"] - 1) < 1e-4 for row in rows)
    assert all(abs(row["sampler_divergence"]) < 1e-6 for row in rows)
    assert all(row["clip_share"] == 0 and row["gradient_norm"] > 0 for row in rows)


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed:UserWarning")  # of a CPU without bfloat16
def test_samples_of_a_copy_in_bfloat16_differ_by_its_rounding(
    tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder]
) -> None:
    """The copy follows the weights of every step; in fewer slots than answers it samples all of them."""
    folder = make_folder("rl")
    config = make_config(sampling_precision="bfloat16", slots=5, optimizer={"lr": 1e-2})
    source = RlSource(tiny_model(tokenizer), config, folder)
    engine = engine_of(source).engine
    assert engine.model is not source.model and engine.slots == 5
    assert {each.dtype for each in engine.model.parameters()} == {torch.bfloat16}
    make_trainer(source).run()
    rows = folder.metrics.read()
    assert all(1e-9 < row["sampler_divergence"] < 1e-3 and abs(row["ratio_mean"] - 1) < 0.01 for row in rows)


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed:UserWarning")
def test_samples_of_a_copy_in_float8_differ_by_its_rounding(
    tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than in bfloat16, and within what the check of the ratio allows; π_old is the trainer's own."""
    monkeypatch.setattr(pack, "SMALLEST", 32)
    folder = make_folder("rl")
    config = make_config(sampling_precision="float8", optimizer={"lr": 1e-2})
    source = RlSource(tiny_model(tokenizer), config, folder)
    assert sum(isinstance(each, Float8Linear) for each in engine_of(source).engine.model.modules()) == 2 * 4
    make_trainer(source).run()
    rows = folder.metrics.read()
    assert all(1e-6 < row["sampler_divergence"] < 0.25 and abs(row["ratio_mean"] - 1) < 0.05 for row in rows)
    assert all(row["sampler_divergence"] > 0 for row in rows)


@pytest.mark.parametrize("smallest", [32, 1024])
def test_a_trainer_in_float8_may_differ_by_its_rounding(
    smallest: int, tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run stopped at step 0, and the sampler was said to have other weights. Where no layer is in float8, nothing differs."""
    monkeypatch.setattr(train_float8, "SMALLEST", smallest)
    monkeypatch.setattr("ingot.train.device.cpu_has_bfloat16", lambda: False)
    folder = make_folder("rl")
    source = RlSource(tiny_model(tokenizer), make_config(precision="float8", optimizer={"lr": 1e-2}), folder)
    make_trainer(source).run()
    found = [row["sampler_divergence"] for row in folder.metrics.read()]
    assert all(1e-5 < each < 0.25 if smallest == 32 else abs(each) < 1e-6 for each in found), found


def with_tool(sampler: EngineSampler) -> Callable[..., list[Episode]]:
    """Every answer is followed by a tool's reply and a second answer: an untrained model would never call a tool."""
    plain = sampler.sample

    def sample(tasks: Sequence[Task], batch: SampleBatch, attempt: int = 0, kinds: Any = None) -> list[Episode]:
        first = plain(tasks, batch, attempt)
        reply = sampler.chat.continuation([Message("tool", "42")])
        prompts = [each.tokens() + reply for each in first]
        samplings = [Sampling(max_new_tokens=8, seed=batch.step * 1000 + index) for index in range(len(tasks))]
        made = []
        for each, completion in zip(first, sampler.engine.complete(prompts, samplings), strict=True):
            second = Node("assistant", completion.tokens, True, completion.logprobs, completion.versions)
            made.append(
                dataclasses.replace(each, segments=[Segment([*each.nodes, Node("tool", reply, False), second])])
            )
        return made

    return sample


def test_the_ratio_stays_one_across_tool_turns(tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder]) -> None:
    folder = make_folder("rl")
    source = RlSource(tiny_model(tokenizer), make_config(optimizer={"lr": 1e-2}), folder)
    engine_of(source).sample = with_tool(engine_of(source))  # type: ignore[method-assign]
    make_trainer(source).run()
    rows = folder.metrics.read()
    assert all(row["response_length"] > 8 and row["gradient_norm"] > 0 for row in rows)
    assert all(abs(row["ratio_mean"] - 1) < 1e-4 and abs(row["sampler_divergence"]) < 1e-6 for row in rows)


def test_other_weights_in_the_sampler_are_found(
    tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder]
) -> None:
    """A sampler that is slightly off has a mean ratio of almost 1, as every sampler has: the divergence tells."""
    config = make_config(prompts_per_step=16, group=8)
    source = RlSource(tiny_model(tokenizer), config, make_folder("rl"))
    engine_of(source).engine = Engine(nudged(source.model, 0.002, seed=9), slots=128, length=CONTEXT)
    trainer = make_trainer(source)
    seen: dict[str, float] = {}

    def watch(step: int, metrics: dict[str, float]) -> dict[str, float]:
        seen.update(metrics)
        return source.check_ratio(step, metrics)

    trainer.after_step = watch
    with pytest.raises(CheckFailed, match="step 0: the trainer does not see the probabilities that the sampler"):
        trainer.run()
    assert abs(seen["ratio_mean"] - 1) < RATIO_TOLERANCE
    assert seen["sampler_divergence"] > 1e-5


def test_another_temperature_in_the_sampler_is_found(
    tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder]
) -> None:
    source = RlSource(tiny_model(tokenizer), make_config(temperature=0.9), make_folder("rl"))
    with pytest.raises(CheckFailed, match="another temperature"):
        make_trainer(source, temperature=1.0).run()


def test_weights_of_the_step_before_are_found(tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder]) -> None:
    """The trained weights never reach the sampler: the first step is right, the second is not."""
    config = make_config(optimizer={"lr": 1e-2, "weight_decay": 0.0})
    folder = make_folder("rl")
    source = RlSource(tiny_model(tokenizer), config, folder)
    engine_of(source).engine = Engine(nudged(source.model, 0.0, seed=0), slots=24, length=CONTEXT)
    with pytest.raises(CheckFailed, match="step 1: "):
        make_trainer(source).run()
    assert [row["step"] for row in folder.metrics.read()] == [0]


def test_steps_sample_their_own_tasks_and_streams_fit_the_episodes(
    tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder]
) -> None:
    """A step is a pure function of seed and step; the response mask is 1 on every sampled token, on no other one is."""
    config = make_config(record_every=2, algorithm=EvenLast(reference_weight=0.1))
    source = RlSource(tiny_model(tokenizer), config, make_folder("rl"))
    again = RlSource(tiny_model(tokenizer), config, make_folder("again"))
    batches, metrics = source.batches(0)
    repeated, repeated_metrics = again.batches(0)
    assert {name: value for name, value in metrics.items() if name not in TIMES} == {
        name: value for name, value in repeated_metrics.items() if name not in TIMES
    }
    assert [batch.tokens.tolist() for batch in batches] == [batch.tokens.tolist() for batch in repeated]
    assert [batch.tokens.tolist() for batch in source.batches(1)[0]] != [batch.tokens.tolist() for batch in batches]
    mask = sum(int(batch.streams["response_mask"].sum()) for batch in batches)
    assert mask == round(metrics["response_length"] * config.prompts_per_step * config.group)
    for batch in batches:
        for name in ("advantage", "sampled_logprob", "reference_logprob"):
            assert not batch.streams[name][batch.streams["response_mask"] == 0].any()
        assert (batch.streams["sampled_logprob"][batch.streams["response_mask"] == 1] < 0).all()


def test_recorded_episodes(tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder]) -> None:
    """Every second step is kept; running a step again replaces it and what came after."""
    config = make_config(record_every=2)
    source = RlSource(tiny_model(tokenizer), config, make_folder("rl"))
    path = source.folder.path / "trajectories.jsonl"
    for step in range(4):
        source.batches(step)
    first = path.read_text(encoding="utf-8")
    rows = [json.loads(line) for line in first.strip().split("\n")]
    assert {row["step"] for row in rows} == {0, 2}
    for row in rows:
        for node in row["nodes"]:
            assert len(node["pieces"]) == len(node["advantages"]) == len(node["logprobs"])
            assert all((value is not None) == node["sampled"] for value in node["advantages"])
            assert (node["ended"] in ("stop", "length")) == node["sampled"] and node["rewards"] == {}
            if node["sampled"]:  # the sampler's weights are the trainer's, so that both see the same distribution
                assert node["old_logprobs"] == pytest.approx(node["logprobs"], abs=1e-4)
                assert node["versions"] == [row["step"]] * len(node["pieces"])
                assert all(0 < value <= math.log(tokenizer.vocabulary_size) for value in node["entropies"])
    for step in (0, 2):
        groups = [(row["group"], row["task_id"]) for row in rows if row["step"] == step]
        numbers = [group for group, _ in groups[:: config.group]]
        assert [group for group, _ in groups] == [number for number in numbers for _ in range(config.group)]
        assert len(numbers) == 4 and numbers == sorted(set(numbers)), "as many whole groups as have 16 answers"
        assert len(set(groups)) == len({group for group, _ in groups}), "the answers of a group are to one task"
    assert {row["group_size"] for row in rows} == {config.group}
    again = RlSource(tiny_model(tokenizer), config, source.folder)
    path.write_bytes(first.encode() + '{"step": 3, "é'.encode()[:-1])  # torn in the middle of a character
    again.batches(2)
    assert path.read_text(encoding="utf-8") == first


@pytest.mark.parametrize(
    ("options", "recorded"), first_fast([({"record_groups": 3}, 3), ({}, 1), ({"record_groups": 9}, 6)])
)
def test_which_groups_are_recorded_does_not_depend_on_rewards(
    options: dict[str, int], recorded: int, tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder]
) -> None:
    """Whole groups, by their places in the batch; dynamic sampling puts those that differ first, which must not be preferred."""
    kept = []
    for earns in (EvenLast(), Never()):
        config = make_config(
            **options, algorithm=earns, group=20, max_new_tokens=2, record_every=1, dynamic_sampling={"rounds": 1}
        )
        source = RlSource(tiny_model(tokenizer), config, make_folder(f"{type(earns).__name__}"))
        for step in range(6):
            source.update(step)
        rows = read_rows(source.pipeline.trajectories.path)
        kept.append([(row["step"], row["group"]) for row in rows])
        counts = Counter(kept[-1])
        assert set(counts.values()) == {20} and len(counts) == 6 * recorded
    assert kept[0] == kept[1]
    assert recorded == 6 or len({group for _, group in kept[0]}) > recorded, "not always the first"


def test_a_prompt_without_room_for_an_answer_is_an_error(
    tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder]
) -> None:
    """As long as a row, it would be trained on and taught nothing."""
    config = make_config()
    whole = RlSource(tiny_model(tokenizer), config, make_folder("rl"))
    task = engine_of(whole).mix.generate(step_seed(1, 0), config.prompts_per_step, "train")[0]
    prompt = engine_of(whole).chat.prompt(task.messages, thinking=task.thinking)
    short = RlSource(tiny_model(tokenizer), make_config(sequence_length=len(prompt)), make_folder("rl"))
    with pytest.raises(CheckFailed, match=f"{task.id}: the prompt has {len(prompt)} tokens and leaves no room"):
        short.batches(0)


class Calls(Script):
    """Calls the calculator again and again; where there is no room for the whole call, writes what there is room for."""

    def __init__(self, turn: list[int]) -> None:
        super().__init__()
        self.turn = turn

    def reply(self, prompt: list[int], sampling: Sampling) -> Reply:
        tokens = self.turn[: sampling.max_new_tokens]
        return Reply(tokens, [-1.0] * len(tokens), [0] * len(tokens))

    def update(self, state: None, version: int) -> None:
        """The script stays as it is."""


def test_a_tool_result_never_makes_an_episode_longer_than_a_row(
    tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder]
) -> None:
    """Rows that end in the call's last token, in the result, behind it, in the second call: a step of RL is made, and fits."""
    chat = ChatFormat(tokenizer)
    (task,) = Calculator().generate(step_seed(1, 0), 1, "train")
    call = Message("assistant", thinking="", tool_calls=[ToolCall("calculator", {"expression": "1+1"})])
    turn = chat.conversation([*task.messages, call], task.schemas)
    wrote = [token for token, one in zip(*turn, strict=True) if one]
    given = len(turn[0]) - len(chat.tokenizer.encode("\n"))
    between = len(chat.continuation([Message("tool", "2")]))
    calls = TaskMixConfig(weights={"calculator": 1.0})
    for beyond in (0, 1, between - 1, between, between + 1, between + len(wrote) - 1):
        length = given + beyond
        parts = {"tasks": calls, "sequence_length": length, "prompts_per_step": 1, "group": 2, "max_new_tokens": length}
        source = RlSource(tiny_model(tokenizer), make_config(**parts), make_folder("rl"))
        engine_of(source).engine = Calls(wrote)  # type: ignore[assignment]
        batches, metrics = source.batches(0)
        assert all(batch.tokens.shape[1] <= length for batch in batches)
        assert metrics["response_length"] == len(wrote) + max(0, beyond - between)


@pytest.mark.parametrize("prompts", [2, 4])
def test_steps_hold_the_shares_of_the_task_kinds_together(
    tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder], prompts: int
) -> None:
    """Of `calculator` less than one task is due in a step; it comes in every tenth place all the same."""
    tasks = TaskMixConfig(weights={"arithmetic": 0.9, "calculator": 0.1})
    config = make_config(tasks=tasks, prompts_per_step=prompts, group=2, sequence_length=400, max_new_tokens=2)

    source = RlSource(tiny_model(tokenizer), config, make_folder("rl"))
    sampler, asked = engine_of(source), list[str]()
    plain = sampler.sample

    def sample(tasks: Sequence[Task], *others: Any) -> list[Episode]:
        asked.extend(task.kind for task in tasks[:: config.group])
        return plain(tasks, *others)

    sampler.sample = sample  # type: ignore[method-assign,assignment]
    for step in range(40 // prompts):
        source.batches(step)
    assert Counter(asked) == {"arithmetic": 36, "calculator": 4}


def test_step_seeds_differ() -> None:
    assert len({step_seed(seed, step) for seed in range(5) for step in range(1000)}) == 5000
