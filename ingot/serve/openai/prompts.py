"""Converts the messages of a request to the tokens that the model reads.

The layout is that of the tokenizer's chat template (ingot/tokens/chat.py). A template without tool calls
gets its tools as text, and its calls are read as text, in the manner of Hermes (Teknium et al. 2024) and Qwen 2.5: the
signatures are in the system turn, a call is `<tool_call>{"name": …, "arguments": …}</tool_call>`, and results come back
in a user turn inside `<tool_response>`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ingot.serve.openai.errors import ApiError, refused
from ingot.serve.openai.requests import AssistantMessage, ChatMessage, ChatRequest, Content, Tool, ToolMessage
from ingot.tokens.chat import ChatFormat, Message, ToolCall
from ingot.tokens.syntax import Syntax, formats
from ingot.tokens.tokenizer import TOOL_CALL_END, TOOL_CALL_START, TOOL_RESPONSE_END, TOOL_RESPONSE_START
from ingot.workspace.errors import IngotError

TOOLS_IN_WORDS = """# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{signatures}
</tools>

For each function call, return a json object with function name and arguments within {start}{end} XML tags:
{start}
{{"name": <function-name>, "arguments": <args-json-object>}}
{end}"""


@dataclass(frozen=True)
class Prompt:
    """The tokens, and what the first sampled token is part of."""

    tokens: list[int]
    in_thinking: bool  # the generation prompt has opened the trace
    may_think: bool  # the model may open one itself


def served_syntax(chat: ChatFormat) -> Syntax:
    """How the model writes its turns. Where the template has no calls, tools are told in words, and calls come as tags."""
    return chat.syntax if chat.syntax.calls else formats()["tags"]


def wants_thinking(body: ChatRequest) -> bool:
    """Whether the model may think first: `enable_thinking` decides, else a `reasoning_effort` other than none."""
    if body.chat_template_kwargs is not None and body.chat_template_kwargs.enable_thinking is not None:
        return body.chat_template_kwargs.enable_thinking
    return body.reasoning_effort != "none"


def make_prompt(chat: ChatFormat, messages: Sequence[ChatMessage], tools: Sequence[Tool], thinking: bool) -> Prompt:
    """The prompt for the next turn; invalid messages are a 400."""
    turns = _read(messages, keep_traces=thinking and chat.syntax.thinks)
    schemas = [tool.function.model_dump(exclude_none=True, exclude={"strict"}) for tool in tools]
    if not chat.syntax.calls:
        turns, schemas = _in_words(turns, schemas), []
    try:
        tokens = chat.prompt(turns, schemas, thinking)
    except IngotError as error:
        raise refused(error, param="messages") from error
    return Prompt(tokens, chat.opens_trace(tokens), thinking)


def make_conversation(chat: ChatFormat, messages: Sequence[ChatMessage], tools: Sequence[Tool]) -> list[int]:
    """A conversation up to the end of its last answer, which a reward model judges; with thinking if an answer has a trace."""
    turns = _read(messages, keep_traces=chat.syntax.thinks)
    schemas = [tool.function.model_dump(exclude_none=True, exclude={"strict"}) for tool in tools]
    if not turns or turns[-1].role != "assistant":
        raise ApiError(400, "the last message must be the assistant's: it is what is judged", param="messages")
    if not chat.syntax.calls:
        turns, schemas = _in_words(turns, schemas), []
    thinking = any(turn.thinking is not None for turn in turns)
    try:
        tokens, mask = chat.conversation(turns, schemas, thinking)
    except IngotError as error:
        raise refused(error, param="messages") from error
    return tokens[: max(place for place, one in enumerate(mask, 1) if one)]


def _read(messages: Sequence[ChatMessage], keep_traces: bool) -> list[Message]:
    """The messages in Ingot's form. Instructions at the beginning become one; results come in the order of the calls."""
    turns: list[Message] = []
    calls: list[str] = []  # the ids of the calls that are still to be answered
    results: dict[int, Message] = {}

    def flush() -> None:
        turns.extend(results[place] for place in sorted(results))
        results.clear()

    for number, message in enumerate(messages):
        place = f"messages.{number}"
        if isinstance(message, ToolMessage):
            if message.tool_call_id not in calls:
                problem = f"no call of the assistant before it has the id {message.tool_call_id!r}"
                raise ApiError(400, f"{place}: {problem}", param=f"{place}.tool_call_id", code="invalid_value")
            results[calls.index(message.tool_call_id)] = Message("tool", _text(message.content))
            continue
        flush()
        if isinstance(message, AssistantMessage):
            calls = [call.id for call in message.tool_calls or ()]
            trace = message.reasoning_content if message.reasoning_content is not None else message.reasoning
            made = [_read_call(call.function.name, call.function.arguments, place) for call in message.tool_calls or ()]
            turns.append(Message("assistant", _text(message.content), trace if keep_traces else None, made))
        elif message.role == "user":
            turns.append(Message("user", _text(message.content)))
        elif turns and turns[-1].role == "system":
            turns[-1].content += "\n\n" + _text(message.content)
        else:
            turns.append(Message("system", _text(message.content)))
    flush()
    return turns


def _text(content: Content | None) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content or ())


def _read_call(name: str, arguments: str, place: str) -> ToolCall:
    try:
        value = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        problem = f"the arguments of the call to {name!r} are not the text of a JSON object"
        raise ApiError(400, f"{place}: {problem}", param=f"{place}.tool_calls", code="invalid_value")
    return ToolCall(name, value)


def _in_words(turns: Sequence[Message], schemas: Sequence[dict[str, Any]]) -> list[Message]:
    """Tools, calls and results as text, for a template that has none."""
    said: list[Message] = []
    for turn in turns:
        if turn.tool_calls:
            calls = [json.dumps({"name": call.name, "arguments": call.arguments}) for call in turn.tool_calls]
            texts = [f"{TOOL_CALL_START}\n{call}\n{TOOL_CALL_END}" for call in calls]
            said.append(Message("assistant", "\n".join(filter(None, [turn.content, *texts]))))
        elif turn.role == "tool":
            result = f"{TOOL_RESPONSE_START}\n{turn.content}\n{TOOL_RESPONSE_END}"
            if said and said[-1].role == "user" and said[-1].content.endswith(TOOL_RESPONSE_END):
                said[-1].content += "\n" + result
            else:
                said.append(Message("user", result))
        else:
            said.append(turn)
    if schemas:
        signatures = "\n".join(json.dumps({"type": "function", "function": schema}) for schema in schemas)
        words = TOOLS_IN_WORDS.format(signatures=signatures, start=TOOL_CALL_START, end=TOOL_CALL_END)
        has_system = bool(said) and said[0].role == "system"
        system = f"{said[0].content}\n\n{words}" if has_system else words
        said[:has_system] = [Message("system", system)]
    return said
