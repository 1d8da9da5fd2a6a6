"""Function calling with simulated APIs: the writer calls the tools that a row describes, and a second model plays them.

A row has a question and `tools`, schemas of functions that need not exist. A call whose arguments break the schema is answered
with the error, as a real API does. For any other the simulator is shown the function, the calls before it in the episode with
their results (so that what was created is found again) and the call, and answers with JSON. An attempt is kept if it made
`min_calls` calls or more, none of them with an error, and then answered. Kimi K2 has models play APIs for its tool-use data
(arXiv 2507.20534); tools that exist are tasks of environments (envs/environment.py).
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from pydantic import Field

from ingot.data.synthesize.config import EndpointConfig
from ingot.data.synthesize.writer import Endpoint
from ingot.envs.environment import reward
from ingot.envs.episode import Episode
from ingot.envs.errors import EnvironmentFailed
from ingot.envs.rows import Row
from ingot.envs.task import Task
from ingot.envs.tools.tool import Tool
from ingot.envs.verifiers.text.json_schema import fits_schema
from ingot.post.data.conversations.row_forms import prompt_of
from ingot.post.synthesis.maker import Maker, origin
from ingot.workspace.errors import DataError

PLAY = (
    "You play a web service for a test. Answer each call with the JSON that the function would return, complete and realistic, "
    "consistent with the results before it, and with nothing around it."
)
Called = list[dict[str, Any]]


class SimulatedTools(Maker):
    """Conversations that call functions which a second model plays."""

    simulator: EndpointConfig = Field(description="the server whose model plays the functions")
    min_calls: int = Field(1, ge=0, description="calls that a kept attempt has at least")
    temperature: float = Field(0.3, ge=0, description="of the simulator's sampling")

    def task_of(self, row: Row, place: str) -> Task | None:
        asked = prompt_of(row, self.form)
        if not asked.tools:
            raise DataError("the row has no `tools`", fix="give schemas of the functions that may be called")
        schemas = [tool.get("function", tool) for tool in asked.tools]
        for schema in schemas:
            fits_schema("{}", schema.get("parameters") or {})  # raises if the schema is none
        tools = [self._tool(schema) for schema in schemas]
        return self.ask(asked.messages, tools=tools, thinking=self.thinking, data=origin(row, place))

    def setup(self, task: Task) -> Called:
        return []

    def _tool(self, schema: dict[str, Any]) -> Tool:
        async def play(state: Called, **arguments: Any) -> str:
            if not fits_schema(json.dumps(arguments), schema.get("parameters") or {}):
                return f"error: the arguments do not fit the schema of {schema['name']}"
            result = await asyncio.to_thread(self._played, schema, state, arguments)
            state.append({"call": schema["name"], "arguments": arguments, "result": result})
            return json.dumps(result, ensure_ascii=False)

        return Tool(schema, play, deadline=self.simulator.timeout_seconds * self.simulator.attempts)

    def _played(self, schema: dict[str, Any], before: Called, arguments: dict[str, Any]) -> Any:
        """What the simulator answers, as JSON."""
        call = {"function": schema, "calls_before": before, "arguments": arguments}
        body = {
            "model": self.simulator.model,
            "messages": [{"role": "system", "content": PLAY}, {"role": "user", "content": json.dumps(call)}],
            "temperature": self.temperature,
        }
        answer = Endpoint(self.simulator).complete(body)
        text = (answer or "").strip().removeprefix("```json").removeprefix("```").removesuffix("```")
        try:
            return json.loads(text)
        except ValueError as error:
            problem = f"the simulator of {schema['name']} did not answer with JSON: {text[:80]!r}"
            raise EnvironmentFailed(problem, place=self.simulator.url, part="server") from error

    @reward()
    def correct(self, episode: Episode) -> float:
        """Whether it made its calls without an error and answered, and no filter drops the conversation."""
        results = [message.content for message in episode.messages if message.role == "tool"]
        fine = len(results) >= self.min_calls and not any(result.startswith("error:") for result in results)
        return float(fine) * super().correct(episode)
