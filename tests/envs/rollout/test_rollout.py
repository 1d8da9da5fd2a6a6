"""Rollouts with a scripted policy: tokens are exactly those of the chat format, limits hold, tools are fenced in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from ingot.envs.config import TaskMixConfig
from ingot.envs.episode import Node
from ingot.envs.mix import TaskMix
from ingot.envs.rollout.episode_run import Limits
from ingot.envs.rollout.rollout import Drawing, rollout
from ingot.envs.task import Task
from ingot.envs.tasks.calculator import Calculator
from ingot.envs.tools.tool import make_tool
from ingot.inference.sampling import Sampling
from ingot.tokens.chat import ChatFormat, Message, ToolCall
from ingot.tokens.config import TokenizerConfig
from ingot.tokens.train_tokenizer import train_tokenizer
from tests.envs.script import Reply, Script, wrong

TEXT = "What is the calculator? It works out an expression, and tells the result of large numbers. " * 20
CHAT = ChatFormat(train_tokenizer([TEXT], TokenizerConfig(vocabulary_size=320)))
END = CHAT.tokenizer.special["<|im_end|>"]
MIX = TaskMix()


class Scripted(Script):
    """Writes the turn that a conversation has after the prompt, and insists that the prompt is that conversation's."""

    def __init__(self, tasks: Sequence[Task], answer: Callable[[Task], list[Message]]) -> None:
        self.sequences: list[tuple[list[int], list[int]]] = []
        for task in tasks:
            messages = [*task.messages, *answer(task)]
            self.sequences.append(CHAT.conversation(messages, task.schemas or None, task.thinking))
        super().__init__()

    def reply(self, prompt: list[int], sampling: Sampling) -> Reply:
        for tokens, mask in self.sequences:
            start = len(prompt)
            if tokens[:start] == prompt and mask[start]:
                end = start + [*mask[start:], 0].index(0)
                turn = tokens[start:end][: sampling.max_new_tokens]
                return Reply(turn, [-0.5] * len(turn), [3] * len(turn))
        raise AssertionError("the prompt is no prefix of any conversation")


class Fixed(Script):
    """Writes the same turns whatever it is asked; the last of them again and again."""

    def __init__(self, *turns: list[int]) -> None:
        self.turns = turns
        super().__init__()

    def reply(self, prompt: list[int], sampling: Sampling) -> Reply:
        tokens = self.turns[min(len(self.asked), len(self.turns)) - 1][: sampling.max_new_tokens]
        return Reply(tokens, [-1.0] * len(tokens), [0] * len(tokens))


def turn_tokens(message: Message, thinking: bool = True) -> list[int]:
    tokens, mask = CHAT.conversation([Message("user", "?"), message], thinking=thinking)
    return [token for token, one in zip(tokens, mask, strict=True) if one]


class Seeded(Script):
    """Says the seed that it is given, three tokens of it."""

    def reply(self, prompt: list[int], sampling: Sampling) -> Reply:
        tokens = [20 + (sampling.seed or 0) // 200**place % 200 for place in range(3)] + [END]
        return Reply(tokens, [-1.0] * 4, [0] * 4)


def test_parts_of_a_rollout_are_those_of_the_whole() -> None:
    """Also of a task that is sampled in several parts, or listed again later on."""
    first, second = MIX.generate(0, 2, "train")
    tasks = [first, first, first, second, second, first]
    whole = [each.tokens() for each in rollout(tasks, Seeded(), CHAT, drawing=Drawing(seed=5))]
    assert len({tuple(each) for each in whole}) == len(tasks), "every sample has a seed of its own"
    slices, drawing = (slice(0, 2), slice(2, 5), slice(5, 6)), Drawing(seed=5)
    parts = [rollout(tasks, Seeded(), CHAT, drawing=drawing, only=part) for part in slices]
    assert [each.tokens() for part in parts for each in part] == whole


@pytest.mark.parametrize("split", ["train", "test"])
def test_solutions_come_back_token_for_token_with_the_training_mask(split: Any) -> None:
    tasks = MIX.generate(3, 40, split)
    policy = Scripted(tasks, MIX.solution)
    episodes = rollout(tasks, policy, CHAT, drawing=Drawing(seed=1))
    newline = len(CHAT.tokenizer.encode("\n"))
    for episode, (tokens, mask) in zip(episodes, policy.sequences, strict=True):
        assert episode.score.reward == 1.0
        assert episode.tokens() == tokens[: episode.length]
        assert episode.sampled() == mask[: episode.length]
        assert len(tokens) - episode.length == newline  # only the line end after the last turn is not asked for
        assert episode.logprobs() == [-0.5 * one for one in episode.sampled()]
        assert episode.versions() == [3 if one else -1 for one in episode.sampled()]


def test_wrong_answers_earn_nothing() -> None:
    tasks = MIX.generate(4, 40, "test")
    policy = Scripted(tasks, lambda task: wrong(MIX.solution(task)))
    assert [episode.score.reward for episode in rollout(tasks, policy, CHAT)] == [0.0] * 40


def test_tools_in_the_direct_mode() -> None:
    calculator = Calculator(thinking=False)
    tasks = calculator.generate(0, 5, "train")
    episodes = rollout(tasks, Scripted(tasks, calculator.solution), CHAT)
    assert [episode.score.reward for episode in episodes] == [1.0] * 5
    assert [node.role for node in episodes[0].nodes] == ["prompt", "assistant", "tool", "assistant"]


def test_a_template_that_opens_the_trace_for_the_model() -> None:
    """As those of DeepSeek-R1 and QwQ do: what the policy writes begins inside the trace."""
    tokenizer = train_tokenizer([TEXT], TokenizerConfig(vocabulary_size=320))
    assert tokenizer.chat_template is not None
    head, ending = tokenizer.chat_template.rsplit('("" if', 1)
    tokenizer.chat_template = f'{head}("<think>" if{ending}'
    chat = ChatFormat(tokenizer)
    mix = TaskMixConfig(weights={"arithmetic": 1.0, "no_think": 1.0})
    for task in TaskMix(mix).generate(0, 6, "train"):
        tokens, mask = chat.conversation([*task.messages, *MIX.solution(task)], thinking=task.thinking)
        wrote = [token for token, one in zip(tokens, mask, strict=True) if one]
        assert tokenizer.special["<think>"] not in wrote
        (episode,) = rollout([task], Fixed(wrote), chat)
        assert episode.score.reward == 1.0
        assert episode.nodes[1].tokens == wrote
        assert episode.messages == MIX.solution(task)


def test_the_turn_limit_ends_a_policy_that_calls_forever() -> None:
    task = Calculator().generate(0, 1, "train")[0]
    call = turn_tokens(Message("assistant", thinking="x", tool_calls=[ToolCall("calculator", {"expression": "1+1"})]))
    policy = Fixed(call)
    episode = rollout([task], policy, CHAT, limits=Limits(max_turns=3))[0]
    assert len(policy.asked) == 3
    assert [node.role for node in episode.nodes] == ["prompt"] + ["assistant", "tool"] * 2 + ["assistant"]
    assert episode.score.reward == 0.0
    assert [message.content for message in episode.messages if message.role == "tool"] == ["2", "2"]
    # what the policy is asked with is what it wrote plus what came between, nothing else
    assert policy.asked[1] == [*policy.asked[0], *call, *episode.nodes[2].tokens]


def test_the_token_limit_bounds_every_episode() -> None:
    tasks = MIX.generate(5, 20, "train")
    chatter = [CHAT.tokenizer.encode("a")[0]] * 10_000
    limit = 150
    for episode in rollout(tasks, Fixed(chatter), CHAT, limits=Limits(10_000, limit)):
        assert episode.length <= max(limit, len(episode.nodes[0].tokens))
        assert episode.score.reward == 0.0 and not episode.score.format_ok
    call = turn_tokens(Message("assistant", thinking="", tool_calls=[ToolCall("calculator", {"expression": "1+1"})]))
    task = Calculator().generate(0, 1, "train")[0]
    prompt = len(CHAT.prompt(task.messages, task.schemas))
    episode = rollout([task], Fixed(call), CHAT, limits=Limits(max_tokens=prompt + len(call), max_turns=9))[0]
    assert [node.role for node in episode.nodes] == ["prompt", "assistant"]


def test_a_budget_by_kind_of_task_is_of_the_whole_episode() -> None:
    """The turn in which it ends is cut there, and no other begins; other kinds have none."""
    call = turn_tokens(Message("assistant", thinking="", tool_calls=[ToolCall("calculator", {"expression": "1+1"})]))
    task = Calculator().generate(0, 1, "train")[0]
    for budget in (1, len(call) - 1, len(call), len(call) + 3, 2 * len(call)):
        policy = Fixed(call)
        limits = Limits(200, 10_000, max_turns=9, budgets={"calculator": budget, "other": 1})
        (episode,) = rollout([task], policy, CHAT, limits=limits)
        assert episode.sampled_count == budget
        assert episode.ended == ("malformed" if budget % len(call) else "tokens"), "cut in a turn, or between two"
        assert len(policy.asked) == -(-budget // len(call))
    (episode,) = rollout([task], Fixed(call), CHAT, limits=Limits(200, 10_000, max_turns=9, budgets={"other": 1}))
    assert episode.turns == 9


def test_a_tool_result_that_leaves_no_room_for_an_answer_ends_the_episode() -> None:
    """At every limit: nothing is longer than it, and what was said to the model is what the verifier reads."""
    call = turn_tokens(Message("assistant", thinking="", tool_calls=[ToolCall("calculator", {"expression": "1+1"})]))
    task = Calculator().generate(0, 1, "train")[0]
    given = len(CHAT.prompt(task.messages, task.schemas)) + len(call)
    result = len(CHAT.continuation([Message("tool", "2")]))
    for limit in range(given, given + result + 4):
        policy = Fixed(call)
        episode = rollout([task], policy, CHAT, limits=Limits(max_tokens=limit))[0]
        fits = given + result < limit
        roles = ["assistant", "tool", "assistant"] if fits else ["assistant"]
        assert episode.length <= limit
        assert [node.role for node in episode.nodes] == ["prompt", *roles]
        assert [message.role for message in episode.messages] == roles
        assert len(policy.asked) == (2 if fits else 1)
        assert episode.score.reward == 0.0


def test_a_prompt_without_room_is_not_asked() -> None:
    policy = Fixed([END])
    episode = rollout(MIX.generate(0, 1, "train"), policy, CHAT, limits=Limits(max_tokens=3))[0]
    assert not policy.asked and episode.messages == [] and episode.score.reward == 0.0


def test_a_right_answer_that_is_cut_off_is_malformed() -> None:
    task = TaskMix(TaskMixConfig(weights={"no_think": 1})).generate(0, 1, "train")[0]
    answer = CHAT.tokenizer.encode(task.answer)
    score = rollout([task], Fixed(answer), CHAT)[0].score
    assert score.correct and not score.format_ok and score.reward == 0.0
    ended = rollout([task], Fixed([*answer, END]), CHAT)[0].score
    assert ended.reward == 1.0


@pytest.mark.parametrize(
    "call",
    ['{"name": "calculator"', '{"name": "calculator", "arguments": "1+1"}', "[]", '{"name": 1, "arguments": {}}'],
)
def test_a_malformed_call_ends_the_episode(call: str) -> None:
    special = CHAT.tokenizer.special
    tokens = [special["<think>"], special["</think>"], special["<tool_call>"]]
    tokens += [*CHAT.tokenizer.encode(call), special["</tool_call>"], END]
    policy = Fixed(tokens)
    episode = rollout(Calculator().generate(0, 1, "train"), policy, CHAT)[0]
    assert len(policy.asked) == 1
    assert (episode.score.reward, episode.score.format_ok) == (0.0, False)
    assert episode.score.detail["tool_call_success"] == 0.0


def test_tools_that_were_not_offered_cannot_be_called() -> None:
    message = Message("assistant", thinking="", tool_calls=[ToolCall("shell", {"command": "ls"})])
    task = Calculator().generate(0, 1, "train")[0]
    (episode,) = rollout([task], Fixed(turn_tokens(message), [END]), CHAT)
    assert episode.messages[1].content == "error: there is no tool shell; there are: calculator"


def test_a_tool_result_cannot_flood_the_context() -> None:
    message = Message("assistant", thinking="", tool_calls=[ToolCall("flood", {})])
    flood = make_tool(lambda: "9" * 10**6, schema={"name": "flood", "parameters": {}}, here=True)
    task = replace(Calculator().generate(0, 1, "train")[0], tools=(flood,))
    (episode,) = rollout([task], Fixed(turn_tokens(message), [END]), CHAT, limits=Limits(max_tokens=4000))
    assert episode.messages[1].content == "9" * 2000 + "\n… (998,000 more characters were cut)"


def test_seeds_depend_on_task_sample_and_turn_not_on_the_batch() -> None:
    tasks = MIX.generate(8, 6, "train")

    def seeds(listed: Sequence[Task], seed: int = 0) -> list[int]:
        policy = Scripted(listed, MIX.solution)
        rollout(listed, policy, CHAT, drawing=Drawing(seed=seed))
        return [sampling.seed for sampling in policy.samplings[: len(listed)]]

    doubled = [task for task in tasks for _ in range(2)]
    assert len(set(seeds(doubled))) == 12
    assert seeds(doubled)[::2] == seeds(tasks)
    assert seeds(list(reversed(tasks))) == list(reversed(seeds(tasks)))
    assert seeds(tasks, seed=1) != seeds(tasks)


def test_record() -> None:
    tasks = [task for task in MIX.generate(9, 20, "train") if task.kind == "calculator"][:1]
    episode = rollout(tasks, Scripted(tasks, MIX.solution), CHAT)[0]
    advantages = [0.25] * episode.length
    row = episode.to_record(12, CHAT.tokenizer, advantages)
    assert (row["step"], row["task_id"], row["kind"], row["reward"]) == (12, tasks[0].id, "calculator", 1.0)
    assert row["prompt"] == tasks[0].question
    assert "".join(piece for node in row["nodes"] for piece in node["pieces"]) == CHAT.tokenizer.decode(
        episode.tokens()
    )
    for node in row["nodes"]:
        expected = 0.25 if node["sampled"] else None
        assert node["advantages"] == [expected] * len(node["pieces"])
        assert node["logprobs"] == [-0.5 if node["sampled"] else None] * len(node["pieces"])
        assert node["versions"] == [3 if node["sampled"] else None] * len(node["pieces"])
    assert episode.to_record(0, CHAT.tokenizer)["nodes"][1]["advantages"][0] is None
    counted = episode.to_record(0, CHAT.tokenizer, columns={"places": list(range(episode.length))})["nodes"]
    places = [place for node in counted for place in node["places"]]
    assert places == [place if one else None for place, one in enumerate(episode.sampled())]
    with pytest.raises(ValueError, match="2 places"):
        episode.to_record(0, CHAT.tokenizer, columns={"places": [0.0, 1.0]})
    with pytest.raises(ValueError, match="3 advantages"):
        episode.to_record(0, CHAT.tokenizer, [1.0, 2.0, 3.0])


def test_a_node_without_its_logprobs_is_refused() -> None:
    with pytest.raises(ValueError, match="0 log-probabilities"):
        Node("assistant", [1, 2], True)
