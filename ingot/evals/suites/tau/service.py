"""Customer service as an environment: an agent with a policy and tools, a user, and a database that must end up right.

The reward of a conversation is 1 if the user ended it, the database is what the reference actions make of it, and every text
that the user must be told stands in some message of the agent (in lower case, commas left out); else 0. That is tau-bench's
rule. What tau2-bench adds, statements about the conversation that a judge decides, is not judged here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import PrivateAttr

from ingot.envs.environment import Environment, reward
from ingot.envs.episode import Episode
from ingot.envs.task import Task
from ingot.evals.suites.tau.retail import TOOLS
from ingot.evals.suites.tau.shop import Record, Shop
from ingot.evals.suites.tau.user import User
from ingot.tokens.chat import Message

SYSTEM = """\
You are a customer service agent of a shop. Help the user by the policy below. In each turn either write to the user or call a \
tool, not both.

{policy}"""


class Service(Environment):
    """The retail shop of tau-bench."""

    _database: Mapping[str, Mapping[str, Record]] = PrivateAttr(default_factory=dict)
    _user: Any = PrivateAttr(default=None)

    @classmethod
    def of(cls, database: Mapping[str, Mapping[str, Record]], user: User) -> Service:
        """The shop with this database and a simulated user."""
        service = cls()
        service._database, service._user = database, user
        return service

    def conversation(self, row: Mapping[str, Any], policy: str, opening: str) -> Task:
        """A row of the published tasks, as the agent meets it."""
        messages = [Message("system", SYSTEM.format(policy=policy)), Message("user", opening)]
        return self.ask(messages, tools=tuple(TOOLS.values()), split="test", data=dict(row))

    def setup(self, task: Task) -> Shop:
        """A database of its own for each conversation."""
        return Shop(self._database)

    async def reply(self, episode: Episode) -> str | None:
        """What the user says next."""
        shop: Shop = episode.state
        said: str | None = None
        if not shop.transferred:
            conversation = [Message("user", episode.task.question), *episode.messages]
            said = await asyncio.to_thread(self._user.say, episode.task.data["user_scenario"], conversation)
        shop.over = said is None
        return said

    @reward()
    def correct(self, episode: Episode) -> float:
        """1 if all is as it should be."""
        return float(episode.state.over and self.database(episode) == 1 and self.told(episode) == 1)

    @reward(weight=0)
    def database(self, episode: Episode) -> float:
        """1 if the database is what the reference actions make of it."""
        return float(episode.state.same_as(after_actions(self._database, episode.task.data)))

    @reward(weight=0)
    def told(self, episode: Episode) -> float:
        """1 if the user was told everything that had to be said."""
        wanted = episode.task.data["evaluation_criteria"].get("communicate_info") or ()
        return float(all(is_said(text, episode.messages) for text in wanted))


def after_actions(database: Mapping[str, Mapping[str, Record]], row: Mapping[str, Any]) -> Shop:
    """The database after a task's reference actions; one that the shop refuses changes nothing."""
    shop = Shop(database)
    for action in row["evaluation_criteria"].get("actions") or ():
        TOOLS[action["name"]].answer_here(action["arguments"], shop)
    return shop


def is_said(text: str, messages: Sequence[Message]) -> bool:
    """Whether the agent says it in some message."""
    said = [message.content.lower().replace(",", "") for message in messages if message.role == "assistant"]
    return any(text.lower() in each for each in said)
