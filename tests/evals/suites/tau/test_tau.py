"""The retail shop of tau-bench: databases equal those of tau2-bench's own tools (recorded), and rewards follow its rule."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ingot.data.read import streams
from ingot.data.synthesize.config import EndpointConfig
from ingot.envs.episode import Episode, Score
from ingot.envs.rollout.episode_run import Limits
from ingot.envs.rollout.probes import Scripted
from ingot.envs.rollout.rollout import rollout
from ingot.evals.bases.suite import Subject
from ingot.evals.engine.request import Play
from ingot.evals.suites.tau import Tau
from ingot.evals.suites.tau.retail import TOOLS
from ingot.evals.suites.tau.service import Service, is_said
from ingot.evals.suites.tau.shop import Shop
from ingot.evals.suites.tau.user import ScriptedUser, SimulatedUser
from ingot.tokens.chat import Message, ToolCall
from ingot.workspace.errors import DataError
from ingot.workspace.interrupt import StopSignal
from tests.envs.rollout.test_rollout import CHAT
from tests.evals.suites.tau.cases import load, outcome, sequences
from tests.evals.suites.tau.record_tau import FILE

WIDE = Limits(max_new_tokens=100_000, max_tokens=400_000, max_turns=40, tool_characters=20_000)
WRITING = ("cancel", "modify", "exchange", "return")


@pytest.fixture(scope="module")
def database(shared_data: Path) -> Any:
    return load(shared_data, "retail_db")


def test_databases_are_those_of_tau2s_tools(shared_data: Path, database: Any) -> None:
    recorded = json.loads(FILE.read_text(encoding="utf-8"))
    found = []
    for actions in sequences(shared_data):
        shop = Shop(database)
        errors = [TOOLS[name].answer_here(arguments, shop).startswith("error") for name, arguments in actions]
        found.append(outcome(errors, database, shop.copies))
    assert found == recorded and len(found) > 600


def service_of(database: Any) -> Service:
    return Service.of(database, ScriptedUser())


def judged(
    service: Service, row: dict[str, Any], actions: Sequence[dict[str, Any]], said: str, over: bool = True
) -> tuple[float, float, float]:
    """The reward, and its parts, of a conversation in which the agent does this, says that, and the user leaves or does not."""
    task = service.conversation(row, "Be kind.", "Hello.")
    shop = service.setup(task)
    for action in actions:
        TOOLS[action["name"]].answer_here(action["arguments"], shop)
    shop.over = over
    episode = Episode(task, [], [Message("assistant", said)], state=shop)
    return service.correct(episode), service.database(episode), service.told(episode)


def test_reference_actions_earn_and_anything_less_does_not(shared_data: Path, database: Any) -> None:
    service, dropped, useless = service_of(database), 0, 0
    for row in load(shared_data, "retail_tasks"):
        criteria = row["evaluation_criteria"]
        actions, said = criteria["actions"], " and ".join(criteria["communicate_info"] or ["Done."])
        assert judged(service, row, actions, f"I can tell you: {said}") == (1, 1, 1)
        assert judged(service, row, actions, said, over=False) == (0, 1, 1)
        if criteria["communicate_info"]:
            assert judged(service, row, actions, "Done.") == (0, 1, 0)
        for number, action in enumerate(actions):
            if action["name"].startswith(WRITING):
                less = judged(service, row, [*actions[:number], *actions[number + 1 :]], said)
                assert less in [(0.0, 0.0, 1.0), (1.0, 1.0, 1.0)]
                dropped, useless = dropped + 1, useless + int(less[0])
    # two the shop refuses; one address is changed back later, and one is what it was
    assert (dropped, useless) == (176, 4)


def test_texts_are_said_without_commas_and_case() -> None:
    messages = [Message("user", "44.08?"), Message("assistant", "That is $8,276.23 in Cotton.")]
    assert is_said("8276.23", messages) and is_said("cotton", messages) and not is_said("44.08", messages)


def played(service: Service, row: dict[str, Any], turns: Sequence[Message]) -> Episode:
    """An episode in which the agent takes these turns, the last one again and again."""
    task = replace(
        service.conversation(row, "Be kind.", ScriptedUser().say(row["user_scenario"], ()) or ""), thinking=False
    )
    script = Scripted(lambda episode: turns[min(episode.turns, len(turns) - 1)], CHAT)
    (episode,) = rollout([task], script, CHAT, {service.kind: service}, limits=WIDE)
    assert episode.score.error is None
    return episode


def test_conversations(shared_data: Path, database: Any) -> None:
    """A right agent, one that does nothing, one that never stops asking, and one that hands over."""
    service, row = service_of(database), load(shared_data, "retail_tasks")[0]
    actions = row["evaluation_criteria"]["actions"]
    calls = [Message("assistant", tool_calls=[ToolCall(each["name"], each["arguments"])]) for each in actions]
    right = played(service, row, [*calls, Message("assistant", "All done.")])
    assert right.score.correct and right.ended == "answer" and right.turns == len(calls) + 2
    assert [message.role for message in right.messages[-3:]] == ["assistant", "user", "assistant"]
    assert "19122" in right.messages[-2].content and '"exchange requested"' in right.messages[-4].content
    assert not played(service, row, [Message("assistant", "All done.")]).score.correct
    asking = played(service, row, [*calls, Message("assistant", "Shall I?")])
    assert [message.content for message in asking.messages if message.role == "user"][1:] == [
        "Yes, please do that."
    ] * 8
    handed = Message("assistant", tool_calls=[ToolCall("transfer_to_human_agents", {"summary": "…"})])
    transferred = played(service, row, [handed, Message("assistant", "Please hold on.")])
    assert transferred.turns == 2 and not transferred.score.correct
    wrong = played(service, row, [Message("assistant", tool_calls=[ToolCall("get_order_details", {"id": 1})]), *calls])
    assert wrong.messages[1].content == "error: the argument order_id is missing"


def test_suite_counts_samples(shared_data: Path, database: Any) -> None:
    subject = Subject("scripted", "chat", StopSignal(), data=shared_data, limit=3)
    measuring = Tau(samples=2, temperature=1.0).measure(subject)
    plays = next(measuring)
    assert len(plays) == 6 and all(isinstance(each, Play) for each in plays)
    tasks = [each.task for each in plays if isinstance(each, Play)]
    assert [task.data["id"] for task in tasks] == ["0", "0", "1", "1", "2", "2"]
    assert (
        "exchange the mechanical keyboard" in tasks[0].question
        and "Retail agent policy" in tasks[0].messages[0].content
    )
    assert len(tasks[0].tools) == 16
    parts = [(1, 1, 1), (1, 1, 1), (1, 1, 1), (0, 1, 0), (0, 0, 1), (0, 0, 0)]
    names = ("correct", "database", "told")
    scores = [Score(float(p[0]), p[0] == 1, True, rewards=dict(zip(names, map(float, p), strict=True))) for p in parts]
    with pytest.raises(StopIteration) as stopped:
        measuring.send([Episode(task, [], [], score) for task, score in zip(tasks, scores, strict=True)])
    found = {each.name: each.estimate.value for each in stopped.value.value.metrics}
    assert found == pytest.approx(
        {"tau/retail": 0.5, "tau/retail/database": 2 / 3, "tau/retail/told": 2 / 3, "tau/retail/pass^2": 1 / 3}
    )
    with pytest.raises(DataError, match="its database is not there"):
        next(Tau(folder=str(shared_data / "bfcl")).measure(subject))


def test_files_that_cannot_be_read_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that unpacks to too much, a damaged one, and one that is not JSON."""
    subject = Subject("scripted", "chat", StopSignal())
    monkeypatch.setattr(streams, "WHOLE", 1_000_000)
    for content, problem in (
        (gzip.compress(b" " * 30_000_000), "too long"),
        (gzip.compress(b"{}" * 1000)[:-9], "truncated"),
        (gzip.compress(b"\xff"), "codec can't decode"),
        (gzip.compress(b"{"), "not JSON"),
    ):
        (tmp_path / "retail_db.json.gz").write_bytes(content)
        with pytest.raises(DataError, match=rf"retail_db\.json.*: the file .*{problem}"):
            next(Tau(folder=str(tmp_path)).measure(subject))


def test_a_model_plays_the_user_from_its_side(shared_data: Path) -> None:
    class Judge:
        def ask(self, messages: Sequence[Message]) -> str:
            asked.append(list(messages))
            return "Hello, my keyboard broke." if len(messages) == 2 else "###STOP###"

    asked: list[list[Message]] = []
    user = SimulatedUser(EndpointConfig(url="http://127.0.0.1:1/v1", model="user"))
    user.judge = Judge()  # type: ignore[assignment]
    scenario = load(shared_data, "retail_tasks")[0]["user_scenario"]
    assert user.say(scenario, ()) == "Hello, my keyboard broke."
    spoken = [Message("user", "Hello."), Message("assistant", tool_calls=[ToolCall("f", {})]), Message("tool", "1")]
    assert user.say(scenario, [*spoken, Message("assistant", "Done.")]) is None
    assert [(each.role, each.content) for each in asked[1][1:]] == [
        ("user", "Hi! How can I help you today?"),
        ("assistant", "Hello."),
        ("user", "Done."),
    ]
    assert "Yusuf Rossi" in asked[0][0].content
