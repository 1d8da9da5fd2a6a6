"""The forms that people's rows have, each turned into a conversation: recognised by its keys, or named in the recipe.

    messages            {"messages": [{"role", "content", …}], "tools", "thinking"}: OpenAI's file, TRL's conversational rows
    sharegpt            {"conversations": [{"from": "human", "value": …}, …], "system", "tools": "[…]"}; also with role/content
    alpaca              {"instruction", "input", "output", "system", "history": [[question, answer], …]}; Dolly: context, response
    prompt_completion   {"prompt", "completion"}, each a text (one turn) or a list of messages
    plain               {"text"}, or {"prompt", "completion"} of texts: printed without a template, as TRL does with such rows
    file.py:convert     a function of your own: takes the row, gives one in any of these forms, a list of them, or None

What the forms mean is their makers' word: ShareGPT and Alpaca as LLaMA-Factory documents them (the input follows the
instruction on a new line; answers of the history are learnt), the others as TRL and OpenAI do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any

from ingot.post.data.conversations.conversation import Conversation
from ingot.post.data.conversations.row_messages import parse_json, read_call, read_messages, split_trace
from ingot.tokens.chat import Message
from ingot.workspace.errors import DataError
from ingot.workspace.functions import FunctionName
from ingot.workspace.outside import is_outside, load_outside

Row = Mapping[str, Any]
AUTO = "auto"
ANSWER = {"role": "assistant"}


def conversations_of(row: Row, form: str = AUTO) -> Iterator[Conversation]:
    """The conversations of a row: one, or what a function of the user's makes of it."""
    if not is_outside(form):
        yield _read(row, form)
        return
    made = load_outside(form)(dict(row))
    for each in made if isinstance(made, list) else [made]:
        if each is not None and not isinstance(each, dict):
            fix = "let the function return a row (a dict), a list of rows, or None to leave the row out"
            raise DataError(f"{form} returned {type(each).__name__}", fix=fix)
        if each is not None:
            yield _read(each, AUTO)


def prompt_of(row: Row, form: str = AUTO) -> Conversation:
    """What a row asks: its messages before the last answer. A row may be a `prompt` or a `question` alone."""
    asked = row.get("prompt", row.get("question"))
    alone = not any(row.get(key) is not None for key in ("messages", "completion", "response", "conversations"))
    if form == AUTO and asked is not None and alone:
        messages, weights = read_messages(_turns(asked, "user", "prompt"))
        return Conversation(_with_system(messages, weights, row), tools_of(row), thinking_of(row), weights, row=row)
    conversation = next(conversations_of(row, form), None)
    if conversation is None:
        raise DataError(f"{form} makes no conversation of the row", fix="leave it out of the file")
    users = [number for number, message in enumerate(conversation.messages) if message.role == "user"]
    if not users:
        raise DataError("nothing is asked in this row", fix="give a user's turn")
    last = users[-1] + 1
    return replace(conversation, messages=conversation.messages[:last], weights=conversation.weights[:last])


def recognise(row: Row) -> str:
    """The form of a row by its keys."""
    given = {key for key, value in row.items() if value is not None}
    if "messages" in given:
        return "messages"
    if "instruction" in given and given & {"output", "response"}:
        return "alpaca"
    if "chosen" in given:
        raise DataError("a preference pair, not a conversation", fix="give the file to a `prefer` stage")
    if "conversations" in given or "conversation" in given:
        return "sharegpt"
    if "prompt" in given and given & {"completion", "response"}:
        return "prompt_completion"
    if "text" in given:
        return "plain"
    fix = f"name its form ({', '.join(FORMS)}), or give a function of yours: form: file.py:convert"
    raise DataError(f"no known form of conversation has the keys {', '.join(row)}", fix=fix)


def _read(row: Row, form: str) -> Conversation:
    name = recognise(row) if form == AUTO else form
    if name not in FORMS:
        raise DataError(f"there is no form {name!r}", fix=f"write {', '.join(FORMS)}, or file.py:convert")
    conversation = FORMS[name](row)
    thinking = thinking_of(row)
    if thinking is None and any(message.thinking is not None for message in conversation.messages):
        thinking = True
    return replace(conversation, tools=tools_of(row), thinking=thinking, row=row)


def _messages(row: Row) -> Conversation:
    messages, weights = read_messages(row.get("messages"))
    return Conversation(_with_system(messages, weights, row), weights=weights)


def _sharegpt(row: Row) -> Conversation:
    field = "conversations" if row.get("conversations") is not None else "conversation"
    listed = row.get(field)
    turns = [sharegpt_turn(turn, number) for number, turn in enumerate(listed)] if isinstance(listed, list) else listed
    messages, weights = read_messages(turns, field)
    return Conversation(_with_system(messages, weights, row), weights=weights)


def sharegpt_turn(turn: Any, number: int) -> Any:
    """A turn with `role` and `content` for `from` and `value`; a call is written as JSON in its value, behind its trace."""
    if not isinstance(turn, dict):
        return turn
    kept = {key: value for key, value in turn.items() if key not in ("from", "value", "role", "content")}
    role, value = turn.get("from", turn.get("role")), turn.get("value", turn.get("content"))
    if role != "function_call":
        return kept | {"role": role, "content": value}
    place = f"message {number}"
    trace, text, _ = split_trace(str(value))
    calls = parse_json(text, place, "a function_call")
    named = [read_call(call, place) for call in (calls if isinstance(calls, list) else [calls])]
    return kept | ANSWER | {"thinking": trace, "tool_calls": [vars(call) for call in named]}


def _alpaca(row: Row) -> Conversation:
    question, answer = _text(row, "instruction"), _text(row, "output" if "output" in row else "response")
    extra = row.get("input", row.get("context"))
    if extra not in (None, ""):
        question += f"\n{extra}"
    turns = list[dict[str, Any]]()
    for pair in row.get("history") or ():
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise DataError("`history` is not a list of pairs", fix='write [["question", "answer"], …]')
        turns += [{"role": "user", "content": pair[0]}, {**ANSWER, "content": pair[1]}]
    turns += [{"role": "user", "content": question}, {**ANSWER, "content": answer}]
    messages, weights = read_messages(turns)
    return Conversation(_with_system(messages, weights, row), weights=weights)


def _prompt_completion(row: Row) -> Conversation:
    answer = row.get("completion", row.get("response"))
    turns = [
        *_turns(row.get("prompt"), "user", "prompt"),
        *_turns(answer, "assistant", "completion"),
    ]
    messages, weights = read_messages(turns)
    given = len(_turns(row.get("prompt"), "user", "prompt"))
    weights = [0.0 if number < given else weight for number, weight in enumerate(weights)]
    return Conversation(_with_system(messages, weights, row), weights=weights)


def _plain(row: Row) -> Conversation:
    if row.get("text") is not None:
        return Conversation([Message("assistant", _text(row, "text"))], weights=[1.0], plain=True)
    answer = _text(row, "completion" if "completion" in row else "response")
    return Conversation(
        [Message("user", _text(row, "prompt")), Message("assistant", answer)], weights=[0.0, 1.0], plain=True
    )


FORMS: dict[str, Callable[[Row], Conversation]] = {
    "messages": _messages,
    "sharegpt": _sharegpt,
    "alpaca": _alpaca,
    "prompt_completion": _prompt_completion,
    "plain": _plain,
}
RowForm = Annotated[str, FunctionName("form of rows", "convert(row)", (AUTO, *FORMS))]


def _turns(value: Any, role: str, field: str) -> list[Any]:
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    if isinstance(value, list):
        return value
    raise DataError(f"`{field}` is neither a text nor a list of messages", fix="write one of them")


def _text(row: Row, field: str) -> str:
    value = row.get(field)
    if not isinstance(value, str):
        raise DataError(f"`{field}` is not a text", fix=f'write "{field}": "…"')
    return value


def _with_system(messages: list[Message], weights: list[float], row: Row) -> list[Message]:
    """The messages with the row's own system prompt before them, if it has one and they have none."""
    system = row.get("system")
    if not isinstance(system, str) or not system or (messages and messages[0].role == "system"):
        return messages
    weights.insert(0, 1.0)
    return [Message("system", system), *messages]


def tools_of(row: Row) -> list[dict[str, Any]]:
    given = row.get("tools") or row.get("functions") or []
    tools = given
    if isinstance(given, str):
        tools = parse_json(given, "tools", "`tools`") if given.strip() else []
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise DataError("`tools` is not a list of tool schemas", fix='write "tools": [{"name": …, "parameters": …}]')
    return tools if isinstance(given, str) else [_without_nulls(tool) for tool in tools]


def _without_nulls(value: Any) -> Any:
    """A schema without the nulls that Arrow fills in where other rows of the file have a key."""
    if isinstance(value, dict):
        return {key: _without_nulls(found) for key, found in value.items() if found is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


def thinking_of(row: Row) -> bool | None:
    """The mode that a row names: its own key, or what TRL hands to the template."""
    options = row.get("chat_template_kwargs")
    named = options.get("enable_thinking") if isinstance(options, dict) else None
    thinking = row.get("thinking", row.get("enable_thinking", named))
    if not isinstance(thinking, bool | None):
        raise DataError(f"`thinking` of the row is {thinking!r}", fix="write true or false, or leave it out")
    return thinking
