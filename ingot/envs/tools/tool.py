"""A tool: what the model reads about it, and the function that answers a call. Chat, server page, rollouts and evals share it.

    def lookup(thing: str) -> str:
        "The colour of a thing."

    make_tool(lookup)                   its schema comes from hints and docstring
    make_tool(lookup, deadline=2, asks=True, schema={…})

A tool answers with text, always: what went wrong comes back as "error: …", which the model can read and act on. (A tool that
cannot do its work for a reason that is none of the model's raises `EnvironmentFailed`; then the episode has no reward.)

A call ends within its deadline, and nothing of it stays behind. So there are three ways to run a function:

    async def     on the event loop; it is cancelled
    def           in a child process (children.py), which is killed; the child finds the function by its module and name
    here=True     in place, for a function that ends at once whatever it is given

A parameter named `state` is not the model's: it is what the environment's `setup` made for the episode. A function that takes it
must be `async def` or `here`, because a child does not have the episode's state.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ingot.envs.errors import EnvironmentFailed
from ingot.envs.tools.children import ToolFunction, run_in_child
from ingot.envs.tools.worker import HintError, check, describe
from ingot.tokens.chat import ToolCall
from ingot.workspace.errors import RecipeError

LONGEST_RESULT = 20_000  # characters: a tool that prints a book must not fill the model's context
DEADLINE = 10.0  # seconds that a call may take, unless the user says otherwise
REFUSED = "error: the user did not allow this call"
STATE = "state"


@dataclass(frozen=True)
class Tool:
    """`schema` is an OpenAI function ({"name", "description", "parameters"}); `asks`: a person is asked before each call."""

    schema: Mapping[str, Any]
    function: Callable[..., Any] | ToolFunction = field(repr=False)
    deadline: float = DEADLINE
    asks: bool = True
    here: bool = False

    @property
    def name(self) -> str:
        """The name by which the model calls it."""
        return str(self.schema["name"])

    @property
    def takes_state(self) -> bool:
        """Whether the function wants the state of the episode."""
        return not isinstance(self.function, ToolFunction) and STATE in inspect.signature(self.function).parameters

    async def answer(self, arguments: Mapping[str, Any], state: Any = None) -> str:
        """What the tool says, within its deadline. Only `EnvironmentFailed` is raised."""
        if self.here or isinstance(self.function, ToolFunction) or not inspect.iscoroutinefunction(self.function):
            return self.answer_here(arguments, state) if self.here else await self._in_child(arguments)
        if wrong := self._problem(arguments):
            return f"error: {wrong}"
        try:
            async with asyncio.timeout(self.deadline):
                return as_text(await self.function(**self._given(arguments, state)))
        except TimeoutError:
            return f"error: no answer in {self.deadline:g} seconds"
        except EnvironmentFailed:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a tool raises is what the model must read
            return f"error: {type(error).__name__}: {error}"

    def answer_here(self, arguments: Mapping[str, Any], state: Any = None) -> str:
        """What a tool says that is called in place."""
        assert self.here and callable(self.function)
        if wrong := self._problem(arguments):
            return f"error: {wrong}"
        try:
            return as_text(self.function(**self._given(arguments, state)))
        except EnvironmentFailed:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a tool raises is what the model must read
            return f"error: {type(error).__name__}: {error}"

    async def _in_child(self, arguments: Mapping[str, Any]) -> str:
        function = self.function if isinstance(self.function, ToolFunction) else ToolFunction.of(self.function)
        return await run_in_child(function, arguments, self.deadline)

    def _given(self, arguments: Mapping[str, Any], state: Any) -> dict[str, Any]:
        return {**arguments, STATE: state} if self.takes_state else dict(arguments)

    def _problem(self, arguments: Mapping[str, Any]) -> str | None:
        """Why the arguments do not fit the function's hints; a function without hints must say so itself."""
        assert callable(self.function)
        try:
            return check(dict(arguments), describe(self.function, ignore=(STATE,)))
        except HintError:
            return None


def make_tool(
    function: Callable[..., Any] | Tool,
    *,
    schema: Mapping[str, Any] | None = None,
    deadline: float = DEADLINE,
    asks: bool = True,
    here: bool = False,
) -> Tool:
    """The tool of a function. Its schema is made from hints and docstring, unless it is given. A tool is returned as it is."""
    if isinstance(function, Tool):
        return function
    try:
        tool = Tool(schema or describe(function, ignore=(STATE,)), function, deadline, asks, here)
    except HintError as error:
        raise RecipeError(str(error), fix="give every parameter a type hint that JSON can write") from error
    if not here and not inspect.iscoroutinefunction(function):
        if tool.takes_state:
            fix = "write `async def`, or make_tool(…, here=True) if it ends at once"
            raise RecipeError(f"the tool {tool.name} takes the episode's state, which a child process lacks", fix=fix)
        ToolFunction.of(function)  # raises if a child could not find it
    return tool


def schemas(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """What the model reads about tools."""
    return [dict(tool.schema) for tool in tools]


def as_text(result: Any) -> str:
    """A result as the model reads it: text as it is, anything else as JSON."""
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)


def cut(text: str, longest: int) -> str:
    """A text, cut where it is too long for a model to read."""
    return text if len(text) <= longest else f"{text[:longest]}\n… ({len(text) - longest:,} more characters were cut)"


def no_such_tool(name: str, tools: Mapping[str, Tool]) -> str:
    """The answer to a call of a tool that is not offered."""
    return f"error: there is no tool {name}; there are: {', '.join(tools) or 'none'}"


def call_tool(tools: Mapping[str, Tool], call: ToolCall) -> str:
    """The answer to a call in a chat: the tool's text, cut where it is too long."""
    if call.name not in tools:
        return no_such_tool(call.name, tools)
    tool = tools[call.name]
    try:
        text = tool.answer_here(call.arguments) if tool.here else asyncio.run(tool.answer(call.arguments))
    except EnvironmentFailed as error:
        text = f"error: {error}"
    return cut(text, LONGEST_RESULT)
