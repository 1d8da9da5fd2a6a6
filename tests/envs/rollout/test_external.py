"""Episodes that their environment leads: exact tokens where a request goes on, a new segment where it does not, and limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ingot.envs.episode import Episode, Score
from ingot.envs.rollout.episode_run import Limits
from ingot.envs.rollout.external import EpisodeEnd, LedEnvironment, SampledTurn, TurnRefused, TurnRequest
from ingot.envs.rollout.probes import Scripted
from ingot.envs.rollout.rollout import rollout
from ingot.envs.task import Task, make_task
from ingot.inference.sampling import Sampling
from ingot.tokens.chat import Message, ToolCall
from tests.envs.rollout.test_rollout import CHAT, turn_tokens
from tests.envs.script import Reply, Script

TOOLS: tuple[dict[str, Any], ...] = ({"name": "look", "description": "Looks.", "parameters": {"type": "object"}},)
TASK = make_task("led", "What is it?", thinking=False)
START = Message("user", "What is it?")
SCORE = Score(0.5, False, True, rewards={"half": 1.0})
CALL = Message("assistant", "", tool_calls=[ToolCall("look", {"at": "the sky"})])
Steps = list[Callable[[list[Message]], TurnRequest | EpisodeEnd]]


class Led(LedEnvironment):
    """Asks what its steps say; each of them sees what was said so far."""

    turns: int | None = None

    @property
    def lead_seconds(self) -> float:
        return 5.0

    @property
    def most_turns(self) -> int | None:
        return self.turns

    def setup(self, task: Task) -> dict[str, Any]:
        return {"steps": iter(STEPS), "said": []}

    def teardown(self, state: dict[str, Any]) -> None:
        CLOSED.append(state)

    async def lead(self, state: dict[str, Any], answer: SampledTurn | TurnRefused | None) -> TurnRequest | EpisodeEnd:
        ANSWERS.append(answer)
        if isinstance(answer, SampledTurn):
            state["said"].append(answer.message)
        return next(state["steps"])(state["said"])

    async def judge(self, episode: Episode) -> Score:
        return SCORE

    def score_at_once(self, task: Task, messages: Any) -> Score | None:
        return None


STEPS: Steps = []
CLOSED: list[Any] = []
ANSWERS: list[SampledTurn | TurnRefused | None] = []


class Says(Script):
    """Says these turns, one after the other."""

    def __init__(self, *turns: Message, cut: int | None = None) -> None:
        self.turns = [turn_tokens(turn, thinking=False)[:cut] for turn in turns]
        super().__init__()

    def reply(self, prompt: list[int], sampling: Sampling) -> Reply:
        tokens = self.turns[len(self.asked) - 1][: sampling.max_new_tokens]
        return Reply(tokens, [-0.1 * (at + 1) for at in range(len(tokens))], [7] * len(tokens))


def played(policy: Any, *steps: Callable[[list[Message]], TurnRequest | EpisodeEnd], **limits: Any) -> Episode:
    STEPS[:], CLOSED[:], ANSWERS[:] = steps, [], []
    (episode,) = rollout([TASK], policy, CHAT, {"led": Led()}, limits=Limits(**{"max_turns": 9, **limits}))
    assert len(CLOSED) == 1
    return episode


def goes_on(*messages: Message, tools: tuple[dict[str, Any], ...] = TOOLS) -> Callable[[list[Message]], TurnRequest]:
    """The question, all that was said so far with these messages between, as a program sends it: without traces."""

    def step(said: list[Message]) -> TurnRequest:
        between = [[START], *([each] for each in messages)]
        whole = [part for at, each in enumerate(between) for part in (*each, *said[at : at + 1])]
        return TurnRequest(tuple(whole), tools, "agent")

    return step


def end(_: list[Message]) -> EpisodeEnd:
    return EpisodeEnd("agent")


def check_exact(episode: Episode, policy: Script) -> None:
    """What the policy was asked and wrote are the beginnings of segments, token by token."""
    whole = [segment.tokens() for segment in episode.segments]
    for asked, wrote in zip(policy.asked, policy.turns, strict=True):  # type: ignore[attr-defined]
        assert any(tokens[: len(asked) + len(wrote)] == asked + wrote for tokens in whole)


def test_a_request_that_goes_on_adds_only_what_is_between() -> None:
    policy = Says(CALL, Message("assistant", "It is blue."), Message("assistant", "Yes."))
    episode = played(
        policy,
        goes_on(),
        goes_on(Message("tool", "blue")),
        goes_on(Message("tool", "blue"), Message("user", "Sure?")),
        end,
    )
    assert [node.role for node in episode.nodes] == ["prompt", "assistant", "tool", "assistant", "user", "assistant"]
    assert len(episode.segments) == 1 and (episode.ended, episode.score) == ("answer", SCORE)
    check_exact(episode, policy)
    assert episode.nodes[0].tokens == CHAT.prompt([START], tools=list(TOOLS), thinking=False)
    assert [node.logprobs[0] for node in episode.nodes if node.sampled] == [-0.1] * 3
    assert [node.ended for node in episode.nodes if node.sampled] == ["stop"] * 3
    assert [message.content for message in episode.messages] == ["", "blue", "It is blue.", "Sure?", "Yes."]
    first = ANSWERS[1]
    assert isinstance(first, SampledTurn) and first.message.tool_calls == CALL.tool_calls
    assert (first.prompt_tokens, first.tokens) == (len(policy.asked[0]), len(policy.turns[0]))


def test_a_budget_of_tokens_is_a_limit_too() -> None:
    """Its last turn is cut there; a program that asks again is told so."""
    first, second = Message("assistant", "It is blue."), Message("assistant", "Yes, it is.")
    length = len(turn_tokens(first, thinking=False))
    steps = (goes_on(), goes_on(Message("user", "Sure?")), goes_on(Message("user", "Sure?"), Message("user", "?")), end)
    episode = played(Says(first, second), *steps, budgets={"led": length + 2})
    assert (episode.sampled_count, episode.ended) == (length + 2, "tokens")
    assert ANSWERS[-1] == TurnRefused("tokens")


def test_an_edited_history_begins_a_new_segment() -> None:
    """Its prompt is encoded from the messages, and none of it counts as sampled."""
    edited = (START, Message("assistant", "It is green."), Message("user", "Sure?"))
    policy = Says(Message("assistant", "It is blue."), Message("assistant", "Yes."))
    episode = played(policy, goes_on(), lambda _: TurnRequest(edited, TOOLS, "agent"), end)
    assert [len(segment.nodes) for segment in episode.segments] == [2, 2]
    check_exact(episode, policy)
    second = episode.segments[1]
    assert second.nodes[0].tokens == CHAT.prompt(edited, tools=list(TOOLS), thinking=False)
    assert sum(second.sampled()) == len(policy.turns[1])


@pytest.mark.parametrize(
    "request_",
    [
        TurnRequest((START, Message("assistant", "It is blue.")), TOOLS, "agent"),  # nothing new
        TurnRequest((START, Message("assistant", "It is blue."), Message("user", "Sure?")), (), "agent"),  # other tools
        TurnRequest((START, Message("assistant", "It is blue."), Message("user", "Sure?")), TOOLS, "another"),
        TurnRequest(
            (START, Message("assistant", "It is blue."), Message("assistant", "!"), Message("user", "?")),
            TOOLS,
            "agent",
        ),
        TurnRequest((START,), TOOLS, "agent"),  # the same again
        TurnRequest((START, Message("user", "Well?")), TOOLS, "agent"),  # as if nothing had been written
    ],
)
def test_what_does_not_go_on_is_not_put_behind_what_was_written(request_: TurnRequest) -> None:
    policy = Says(Message("assistant", "It is blue."), Message("assistant", "Yes."))
    episode = played(policy, goes_on(), lambda _: request_, lambda _: EpisodeEnd(request_.agent))
    assert policy.asked[1] == CHAT.prompt(request_.messages, tools=list(request_.tools) or None, thinking=False)
    assert len(episode.segments) == (1 if request_.agent == "another" else 2)


def test_only_the_agent_that_is_trained_is_kept_and_conversations_may_alternate() -> None:
    other = TurnRequest((Message("user", "You are a user."),), (), "user")
    policy = Says(Message("assistant", "Blue."), Message("assistant", "Sure?"), Message("assistant", "Yes."))

    def third(said: list[Message]) -> TurnRequest:
        return TurnRequest((START, said[0], Message("user", "Sure?")), TOOLS, "agent")

    episode = played(policy, goes_on(), lambda _: other, third, end)
    assert len(episode.segments) == 1 and [node.sampled for node in episode.nodes] == [False, True, False, True]
    assert episode.segments[0].tokens() == policy.asked[2] + policy.turns[2]


def test_a_trace_that_the_program_leaves_out_stays_in_the_tokens() -> None:
    task = replace(TASK, thinking=True)
    thought = Message("assistant", "It is blue.", thinking="the sky")
    policy = Says()
    policy.turns = [turn_tokens(thought), turn_tokens(Message("assistant", "Yes.", thinking=""))]
    forgot = replace(thought, thinking=None)
    STEPS[:] = [goes_on(), lambda _: TurnRequest((START, forgot, Message("user", "Sure?")), TOOLS, "agent"), end]
    (episode,) = rollout([task], policy, CHAT, {"led": Led()})
    assert len(episode.segments) == 1
    check_exact(episode, policy)


def test_a_turn_that_is_cut_gets_the_end_that_it_lacks() -> None:
    policy = Says(Message("assistant", "It is blue."), Message("assistant", "Yes."), cut=3)
    steps: Steps = [
        goes_on(),
        lambda said: TurnRequest((START, said[0], Message("user", "What?")), TOOLS, "agent"),
        end,
    ]
    episode = played(policy, *steps)
    (_, _, between, _) = episode.nodes
    assert between.tokens[0] == CHAT.turn_end and not between.sampled
    check_exact(episode, policy)
    assert episode.ended == "malformed"


def test_at_a_limit_the_environment_is_told_and_scores_what_there_is() -> None:
    policy = Says(CALL, CALL)
    episode = played(policy, goes_on(), goes_on(Message("tool", "blue")), end, max_turns=1)
    assert isinstance(ANSWERS[-1], TurnRefused) and ANSWERS[-1].limit == "turns"
    assert (episode.ended, episode.turns, episode.score) == ("turns", 1, SCORE)

    STEPS[:] = [goes_on(), goes_on(Message("tool", "blue")), end]
    (episode,) = rollout([TASK], Says(CALL, CALL), CHAT, {"led": Led(turns=2)}, limits=Limits(max_turns=1))
    assert (episode.ended, episode.turns) == ("answer", 2), "the environment's own limit"

    long = Message("tool", "blue " * 300)
    episode = played(Says(CALL, CALL), goes_on(), goes_on(long), end, max_tokens=200)
    assert (episode.ended, episode.turns, len(episode.nodes)) == ("tokens", 1, 2)

    episode = played(Says(CALL, CALL), goes_on(), end, episode_seconds=0.0)
    assert (episode.ended, episode.turns, episode.failed) == ("time", 0, False)


def test_an_environment_that_never_ends_at_a_limit_fails() -> None:
    episode = played(Says(CALL), *[goes_on()] * 99, max_turns=0)
    assert episode.failed and "16 more turns at a limit (turns)" in str(episode.score.error)


def test_what_it_raises_is_a_failure_and_the_state_is_torn_down() -> None:
    def broken(_: list[Message]) -> TurnRequest:
        raise ValueError("no tool server")

    episode = played(Says(CALL), goes_on(), broken)
    assert episode.failed and "no tool server" in str(episode.score.error) and episode.ended == "error"


def test_a_speaker_is_shown_the_conversation_and_tools_of_the_request() -> None:
    seen: list[tuple[list[Message], list[str]]] = []

    class Watching(Scripted):
        def submit_episode(self, episode: Episode, tools: Any, sampling: Sampling) -> Any:
            seen.append((episode.context, [tool["name"] for tool in tools]))
            return super().submit_episode(episode, tools, sampling)

    asked = TurnRequest((Message("system", "Be brief."), START), TOOLS, "agent", most=2)
    played(Watching(lambda _: Message("assistant", "Blue."), CHAT), lambda _: asked, end)
    assert seen == [([Message("system", "Be brief."), START], ["look"])]
    answer = ANSWERS[-1]
    assert isinstance(answer, SampledTurn) and answer.tokens == 2
