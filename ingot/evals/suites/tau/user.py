"""The user of a conversation: played by a model behind a server, or by a script.

The script knows one way to talk: it says what it wants, then who it is, and then agrees to everything. It serves to try a
suite, and to measure an agent that needs no more than that; published numbers are with a model as the user.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ingot.data.synthesize.config import EndpointConfig
from ingot.envs.verifiers.judges.endpoint import EndpointJudge
from ingot.tokens.chat import Message

STOP = "###STOP###"
GUIDE = f"""\
You play a customer who writes to the customer service of a shop. You are the customer, never the agent. Below is your scenario.

- Write one short message at a time, in your own words, as a customer would.
- Say what you know when you are asked for it, not everything at once. What the scenario does not say you do not know.
- Agree to an action only if it is what the scenario wants.
- When everything in the scenario is settled, or you were handed over to a person, or you cannot go on, write only {STOP}

Scenario:
"""
GREETING = "Hi! How can I help you today?"
AGREEMENTS = 8  # that the script gives before it leaves


class User(Protocol):
    """Who talks with the agent."""

    def say(self, scenario: Mapping[str, Any], conversation: Sequence[Message]) -> str | None:
        """The next message to the agent; None when there is nothing more to say."""


class ScriptedUser:
    """Says what it wants and who it is, then agrees."""

    def say(self, scenario: Mapping[str, Any], conversation: Sequence[Message]) -> str | None:
        """The next message, by how many it has said already."""
        instructions = scenario["instructions"]
        said = [message for message in conversation if message.role == "user"]
        if isinstance(instructions, str):
            lines = [instructions]
        else:
            who = (instructions.get("known_info"), instructions.get("unknown_info"))
            lines = [instructions["reason_for_call"], " ".join(filter(None, who))]
        if len(said) < len(lines):
            return str(lines[len(said)])
        return "Yes, please do that." if len(said) < len(lines) + AGREEMENTS and _asks(conversation) else None


class SimulatedUser:
    """A model behind a server plays the user."""

    def __init__(self, config: EndpointConfig, temperature: float = 0.0) -> None:
        self.judge = EndpointJudge(config, temperature=temperature, structured=False)

    def say(self, scenario: Mapping[str, Any], conversation: Sequence[Message]) -> str | None:
        """The model's message; to it the agent is the user."""
        system = Message("system", GUIDE + json.dumps(scenario, indent=1, ensure_ascii=False))
        turned = [
            Message("assistant" if message.role == "user" else "user", message.content)
            for message in conversation
            if message.role in ("user", "assistant") and message.content.strip()
        ]
        text = self.judge.ask([system, Message("user", GREETING), *turned])
        return None if "###" in text else text


def _asks(conversation: Sequence[Message]) -> bool:
    """Whether the agent's last message asks something."""
    return bool(conversation) and "?" in conversation[-1].content
