"""Environments of the real `verifiers` play under our rollouts: exact tokens, its own rewards, and a few steps of RL.

It stands in a virtual environment of its own, which `make test-all` makes and whose Python INGOT_VERIFIERS_PYTHON names.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from ingot.checkpoints.checkpoint import save_checkpoint
from ingot.envs.episode import Episode
from ingot.envs.rollout.episode_run import Limits
from ingot.envs.rollout.probes import Scripted
from ingot.envs.rollout.rollout import Drawing, request_seed, rollout, rollouts
from ingot.envs.tasks import _verifiers_child
from ingot.envs.tasks.verifiers import Verifiers
from ingot.inference.engine import Engine
from ingot.inference.sampling import Sampling
from ingot.model.initialise import initialise
from ingot.model.transformer import Transformer
from ingot.post.rl import stage as rl
from ingot.post.rl.config import RlConfig
from ingot.tokens.chat import ChatFormat, Message, ToolCall
from ingot.workspace.errors import RecipeError
from tests.making.rows import read_rows
from tests.making.stages import stage_folder
from tests.serve.speaker import speaker_config, trained_speaker

PYTHON = os.environ.get("INGOT_VERIFIERS_PYTHON", "")
FOLDER = Path(__file__).with_name("verifiers_environments")
SEED, TOKENS = 5, 48
LIMITS = Limits(TOKENS, 256, max_turns=4)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON, reason="INGOT_VERIFIERS_PYTHON does not name a Python that has verifiers 0.4"),
]


@pytest.fixture(scope="module")
def speaker() -> Transformer:
    return trained_speaker()


@pytest.fixture(scope="module")
def chat(speaker: Transformer) -> ChatFormat:
    assert speaker.tokenizer is not None
    return ChatFormat(speaker.tokenizer)


@pytest.fixture(scope="module", autouse=True)
def _nothing_left() -> Iterator[None]:
    yield
    _verifiers_child.close_children()


def kind(name: str, taskset: dict[str, Any] | None = None, **options: Any) -> Verifiers:
    path = str(FOLDER / f"{name}.py")
    return Verifiers(environment=path, python=PYTHON, options={"taskset": taskset or {}}, **options)


def play(
    environment: Verifiers, speaker: Transformer, chat: ChatFormat, temperature: float = 1.0, times: int = 1
) -> list[Episode]:
    tasks = [task for task in (*environment.rows("train"), *environment.rows("test")) for _ in range(times)]
    engine = Engine(speaker, slots=4, length=256)
    engine.version = 3
    drawing = Drawing(temperature, seed=SEED)
    return rollout(tasks, engine, chat, {"verifiers": environment}, drawing=drawing, limits=LIMITS)


def check_exact(
    episode: Episode, model: Transformer, chat: ChatFormat, temperature: float, limits: Limits = LIMITS
) -> None:
    """The engine, asked again with the tokens before each turn and its seed, writes the turn with the same probabilities."""
    engine = Engine(model, slots=1, length=limits.max_tokens)
    turn = 0
    for segment in episode.segments:
        before: list[int] = []
        for node in segment.nodes:
            if node.sampled:
                room = min(limits.max_new_tokens, limits.max_tokens - len(before))
                seed = request_seed(SEED, episode.task.id, 0, turn)
                sampling = Sampling(room, temperature, stop_tokens=chat.stop_tokens, seed=seed)
                (again,) = engine.complete([before], [sampling])
                assert node.tokens == list(again.tokens)
                assert node.logprobs == pytest.approx(list(again.logprobs), abs=1e-4)
                assert node.versions == [3] * len(node.tokens) and node.ended in ("stop", "length")
                turn += 1
            before += node.tokens
    assert turn == episode.turns > 0


def test_single_turns_are_exact_and_earn_what_verifiers_says(speaker: Transformer, chat: ChatFormat) -> None:
    """By its own rollout and client too, for the same texts."""
    done = play(kind("greetings", {"count": 8}), speaker, chat)
    for episode in done:
        assert not episode.failed and episode.turns == 1
        check_exact(episode, speaker, chat, 1.0)
        assert episode.nodes[0].tokens == chat.prompt([Message("user", episode.task.question)], thinking=True)
        text = episode.answer.strip()
        vowels = sum(letter in "aeiou" for letter in text) / max(1, len(text))
        assert dict(episode.score.rewards) == pytest.approx({"length": len(text), "vowels": vowels})
        assert episode.score.reward == pytest.approx(0.5 * len(text) + 2 * vowels)
        assert dict(episode.score.detail) == {"words": len(text.split())}

    said = {each.task.question: each for each in done}
    texts = json.dumps({question: each.messages[-1].content for question, each in said.items()})
    command = [PYTHON, str(FOLDER / "own_rewards.py")]
    own = subprocess.run(command, input=texts, capture_output=True, text=True, timeout=180)
    assert own.returncode == 0, own.stderr[-3000:]
    rows = [json.loads(line) for line in own.stdout.splitlines() if line.startswith("{")]
    assert len(rows) == len(said) == 8
    for row in rows:
        score = said[row["question"]].score
        assert (score.reward, dict(score.rewards)) == (row["reward"], row["rewards"])
        assert dict(score.detail) == row["metrics"]


def test_several_turns_stay_one_exact_segment(speaker: Transformer, chat: ChatFormat) -> None:
    (episode,) = play(kind("asks_again"), speaker, chat)
    assert not episode.failed, episode.score.error
    assert [node.role for node in episode.nodes] == ["prompt", "assistant", "user", "assistant", "user", "assistant"]
    assert len(episode.segments) == 1 and episode.score.rewards == {"answers": 3.0}
    opening = [Message("system", "Be kind."), Message("user", "Bye")]
    assert episode.nodes[0].tokens == chat.prompt(opening, thinking=True)
    assert [message.content for message in episode.messages if message.role == "user"] == ["And again?", "Hello"]
    check_exact(episode, speaker, chat, 1.0)


def caller(chat: ChatFormat, tools: Sequence[dict[str, Any]]) -> Transformer:
    """A model that has learnt one conversation with these tools by heart: it calls, and answers with the result."""
    messages = [
        Message("user", "What is 12*34?"),
        Message("assistant", "", thinking="call it", tool_calls=[ToolCall("times", {"a": 12, "b": 34})]),
        Message("tool", "408"),
        Message("assistant", "It is 408.", thinking="done"),
    ]
    ids, mask = chat.conversation(messages, list(tools), thinking=True)
    tokens, learnt = torch.tensor([ids]), torch.tensor(mask[1:], dtype=torch.bool)
    model = Transformer(speaker_config(chat.tokenizer, context=1024))
    initialise(model, seed=0)
    model.tokenizer = chat.tokenizer
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, betas=(0.8, 0.9), weight_decay=0.0)
    for _ in range(200):
        loss = cross_entropy(model(tokens[:, :-1])[0, learnt], tokens[0, 1:][learnt])
        if loss.item() < 0.01:
            return model
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    raise AssertionError("the conversation was not learnt")


def test_a_tool_of_verifiers_answers_the_policy(chat: ChatFormat) -> None:
    environment = kind("multiplies")
    tasks, limits = [*environment.rows("train"), *environment.rows("test")], Limits(160, 1024, max_turns=4)
    silent = Scripted(lambda _: Message("assistant", "no", thinking=""), chat)
    (asked,) = rollout(tasks, silent, chat, {"verifiers": environment}, limits=limits)
    (offered,) = asked.segments[0].tools or ()
    assert (offered["name"], offered["description"]) == ("times", "Multiply two whole numbers.")
    assert asked.score.rewards == {"correct": 0.0, "called": 0.0} and not asked.failed

    model = caller(chat, [offered])
    engine = Engine(model, slots=2, length=1024)
    engine.version = 3
    drawing = Drawing(0.7, seed=SEED)
    (episode,) = rollout(tasks, engine, chat, {"verifiers": environment}, drawing=drawing, limits=limits)
    assert not episode.failed, episode.score.error
    assert [node.role for node in episode.nodes] == ["prompt", "assistant", "tool", "assistant"]
    assert "Multiply two whole numbers." in chat.tokenizer.decode(episode.nodes[0].tokens)
    assert [message.content for message in episode.messages if message.role == "tool"] == ["408"]
    assert episode.score.rewards == {"correct": 1.0, "called": 1.0} and episode.score.reward == 1.25
    check_exact(episode, model, chat, 0.7, limits=limits)


def test_limits_end_an_episode_that_is_scored_as_it_stands(speaker: Transformer, chat: ChatFormat) -> None:
    environment = kind("asks_again")
    tasks = [*environment.rows("train"), *environment.rows("test")]
    limits = Limits(TOKENS, 256, max_turns=2)
    (episode,) = rollout(tasks, Engine(speaker, slots=1, length=256), chat, {"verifiers": environment}, limits=limits)
    assert (episode.ended, episode.turns, dict(episode.score.rewards)) == ("turns", 2, {"answers": 2.0})


def test_a_reward_that_raises_is_failed_and_not_zero(speaker: Transformer, chat: ChatFormat) -> None:
    done = play(kind("greetings", {"count": 4, "broken": ["Hello"]}), speaker, chat)
    failed = {each.task.question: each.score.error for each in done if each.failed}
    assert list(failed) == ["Hello"] and "the verifier is broken" in str(failed["Hello"])
    assert len(done) == 4


def test_kill_9_in_the_middle_of_a_run_loses_nothing(speaker: Transformer, chat: ChatFormat) -> None:
    environment = kind("greetings", {"count": 6})
    tasks = [*environment.rows("train"), *environment.rows("test")] * 4
    engine = Engine(speaker, slots=4, length=256)
    groups = rollouts(tasks, engine, chat, {"verifiers": environment}, group=2, at_once=4, limits=LIMITS)
    done = list(next(groups))
    (killed,) = (each for each in _verifiers_child._children.values() if each.tasks and len(each.tasks) == 6)
    os.kill(killed.pid, signal.SIGKILL)
    done += [episode for group in groups for episode in group]
    assert len(done) == 2 * len(tasks)
    failed = [each for each in done if each.failed]
    assert 0 < len(failed) <= 8 and all(
        "process of the environment has ended" in str(each.score.error) for each in failed
    )
    assert not done[-1].failed and all(each.score.reward > 0 for each in done if not each.failed and each.answer)


def test_rl_takes_steps_on_it(speaker: Transformer, tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "base", speaker)
    options = {"environment": str(FOLDER / "greetings.py"), "python": PYTHON, "options": {"taskset": {"count": 8}}}
    config = RlConfig.model_validate(
        {
            "steps": 3,
            "sequence_length": 256,
            "prompts_per_step": 2,
            "group": 4,
            "max_new_tokens": 24,
            "record_every": 1,
            "temperature": 1.3,
            "device": "cpu",
            "precision": "float32",
            "tasks": {"weights": {"verifiers": 1}, "verifiers": options},
        }
    )
    folder = stage_folder(tmp_path / "rl")
    rl.run(config, {"checkpoint": tmp_path / "base"}, folder)
    rows = list(folder.metrics.read())
    assert len(rows) == 3 and all(row["sampler_divergence"] < 1e-5 for row in rows), (
        "the trainer sees the sampler's tokens"
    )
    records = read_rows(folder.path / "trajectories.jsonl")
    assert records and {record["kind"] for record in records} == {"verifiers"}
    assert all(set(record["rewards"]) == {"length", "vowels"} for record in records)
    assert len({record["reward"] for record in records}) > 1


def test_bad_input_of_the_real_package(tmp_path: Path) -> None:
    def refused(**options: Any) -> str:
        with pytest.raises(RecipeError) as caught:
            Verifiers(python=PYTHON, **options).rows("train")
        return str(caught.value)

    assert "there is no environment no_such_package" in refused(environment="no_such_package")
    wrong = refused(environment=str(FOLDER / "greetings.py"), options={"taskset": {"counts": 3}})
    assert "its options do not fit" in wrong and "counts" in wrong
    shell = {"agent": {"harness": {"id": "bash"}}}
    assert "runs the model's commands on this machine" in refused(
        environment=str(FOLDER / "greetings.py"), options=shell
    )
    (tmp_path / "broken_env.py").write_text("import verifiers.v1 as vf\nraise OSError('no data')\n")
    broken = refused(environment=str(tmp_path / "broken_env.py"))
    assert "OSError: no data" in broken and "broken_env.py:2" in broken


def test_nothing_is_left_running() -> None:
    """The last of the file: every process that was started, and its tool servers, end."""
    marks = [f"{_verifiers_child.MARK}={each._mark}".encode() for each in _verifiers_child._children.values()]
    threads = threading.enumerate()
    assert not any(thread.name == "ingot-verifiers" for thread in threads)
    _verifiers_child.close_children()
    time.sleep(0.2)
    for each in Path("/proc").glob("[0-9]*/environ"):
        try:
            found = each.read_bytes().split(b"\0")
        except OSError:
            continue
        assert not any(mark in found for mark in marks)
