"""Turns as other parsers read them: `renderers`, `transformers` with TRL's response templates, OpenAI's own for harmony.

Every case is one turn of one format. Where all is in order, all agree, but for DIFFERS. Where something is broken, the parsers
differ among each other; what ours makes of it is pinned in test_broken.py.
`python -m tests.tokens.formats.test_peers` prints the table of agreement.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from renderers import parsing
from renderers.base import ParsedResponse, ToolCallParseStatus
from transformers import PreTrainedTokenizerFast
from trl import chat_template_utils as trl_templates

from ingot.tokens.chat import ChatFormat
from ingot.tokens.message import Message, ToolCall
from ingot.tokens.template_files import template_text
from tests.conftest import SHARED_DATA
from tests.tokens.formats.wires import SPECIAL, make_chat, make_tokenizer, sampled

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "f",
            "parameters": {
                "type": "object",
                "properties": {"text": {"type": "string"}, "number": {"type": "integer"}, "list": {"type": "array"}},
            },
        },
    },
    {"type": "function", "function": {"name": "g", "parameters": {"type": "object", "properties": {}}}},
]
F, G = ToolCall("f", {"text": "0042", "number": 1, "list": [1, "a"]}), ToolCall("g", {})
MULTILINE = ToolCall("f", {"text": 'def f():\n    return "x"\n# </parameter> <b>'})
GOOD = {
    "answer": Message("assistant", "It is 4."),
    "trace": Message("assistant", "It is 4.", "hm, 2+2"),
    "call": Message("assistant", "", None, [F]),
    "no arguments": Message("assistant", "", None, [G]),
    "two calls": Message("assistant", "", None, [F, G]),
    "text and call": Message("assistant", "Let me see.", None, [F]),
    "trace and call": Message("assistant", "", "hm", [F]),
    "all": Message("assistant", "Let me see.", "hm", [G, F]),
    "marks in a value": Message("assistant", "", None, [MULTILINE]),
}
BROKEN = (
    "cut in the call",
    "cut in the trace",
    "no end of the call",
    "call in the trace",
    "text behind the call",
    "unknown tool",
)


class Read(NamedTuple):
    """What a parser says of a turn."""

    content: str
    thinking: str
    calls: list[tuple[str, Any]]


Peer = Callable[[ChatFormat, list[int]], Read]


def ours(chat: ChatFormat, tokens: list[int]) -> Read:
    message = chat.parse([*tokens, chat.turn_end], tools=TOOLS)
    calls = [(call.name, call.arguments) for call in message.tool_calls]
    return Read(message.content.strip(), (message.thinking or "").strip(), calls)


def _peer_tokenizer(chat: ChatFormat) -> PreTrainedTokenizerFast:
    backend = type(chat.tokenizer.backend).from_str(chat.tokenizer.backend.to_str())
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|im_end|>")


def renderers(parse: Callable[..., ParsedResponse], marks: dict[str, str], tools: bool = False) -> Peer:
    """A parser of `renderers`; `marks` are its ids by name."""

    def read(chat: ChatFormat, tokens: list[int]) -> Read:
        ids = {name: chat.tokenizer.special[mark] for name, mark in marks.items()}
        options = {"tools": TOOLS} if tools else {}
        found = parse(_peer_tokenizer(chat), tokens, stop_ids={chat.turn_end}, **ids, **options)
        calls = [
            (call.name or "", call.arguments) for call in found.tool_calls if call.status == ToolCallParseStatus.OK
        ]
        return Read(found.content.strip(), (found.reasoning_content or "").strip(), calls)

    return read


def transformers(template: dict[str, Any], end: str = "<|im_end|>") -> Peer:
    """`parse_response` with a response template of TRL; it reads text, in which a mark is a mark, up to the end of a turn."""

    def read(chat: ChatFormat, tokens: list[int]) -> Read:
        peer = _peer_tokenizer(chat)
        peer.response_template = template
        text = chat.tokenizer.decode(tokens) + end
        try:
            found = peer.parse_response(
                text, prefix=template.get("start_anchor", "<|im_start|>assistant\n"), tools=TOOLS
            )
        except ValueError as error:  # a call that cannot be read takes the whole turn with it
            return Read(f"raises {type(error).__name__}", "", [])
        calls = [(each["function"]["name"], each["function"]["arguments"]) for each in found.get("tool_calls") or []]
        return Read((found.get("content") or "").strip(), (found.get("reasoning_content") or "").strip(), calls)

    return read


THINK = {"think_id": "<think>", "think_end_id": "</think>"}
CALL = {"tool_call_id": "<tool_call>", "tool_call_end_id": "</tool_call>"}
MINIMAX = {"tool_call_id": "<minimax:tool_call>", "tool_call_end_id": "</minimax:tool_call>"}
DEEPSEEK = {
    f"tool_{name}_id": f"<｜tool▁{mark}｜>"
    for name, mark in (
        ("calls_begin", "calls▁begin"),
        ("calls_end", "calls▁end"),
        ("call_begin", "call▁begin"),
        ("call_end", "call▁end"),
        ("sep", "sep"),
    )
}
ARGUMENT = {f"arg_{name}_id": f"<{mark}>" for name, mark in (("key", "arg_key"), ("value", "arg_value"))}
ARGUMENT_ENDS = {f"arg_{name}_end_id": f"</{mark}>" for name, mark in (("key", "arg_key"), ("value", "arg_value"))}
KIMI = {
    f"tool_{name}_id": f"<|tool_{name}|>"
    for name in ("calls_section_begin", "calls_section_end", "call_begin", "call_argument_begin", "call_end")
}
PEERS: dict[tuple[str, str], Peer] = {
    ("tags", "renderers"): renderers(parsing.parse_qwen3, {"reasoning_end_id": "</think>"} | CALL),
    ("qwen3_coder", "renderers"): renderers(parsing.parse_qwen35, THINK | CALL, True),
    ("glm45", "renderers"): renderers(parsing.parse_glm, THINK | CALL | ARGUMENT | ARGUMENT_ENDS, True),
    ("deepseek_v3", "renderers"): renderers(parsing.parse_deepseek_v3, DEEPSEEK),
    ("kimi_k2", "renderers"): renderers(parsing.parse_kimi_k2, KIMI),
    ("minimax_m2", "renderers"): renderers(parsing.parse_minimax, THINK | MINIMAX, True),
    ("llama3", "renderers"): renderers(parsing.parse_llama_3, {}),
    ("tags", "transformers"): transformers(trl_templates.qwen3_template),
    ("qwen3_coder", "transformers"): transformers(trl_templates.qwen3_5_template),
    ("glm45", "transformers"): transformers(trl_templates.glm4moe_template, "<|user|>"),
    ("llama3", "transformers"): transformers(trl_templates.llama3_template, "<|eot_id|>"),
    ("lfm2", "transformers"): transformers(trl_templates.lfm2_2_5_template),
    ("gemma4", "transformers"): transformers(trl_templates.gemma4_template, "<turn|>"),
}
DIFFERS = {  # of turns in order: ours is what the message said
    ("qwen3_coder", "renderers"): {"marks in a value"},  # a value ends at the first </parameter>
    ("minimax_m2", "renderers"): {"marks in a value"},
    ("qwen3_coder", "transformers"): {"marks in a value"},
    ("lfm2", "transformers"): {"marks in a value", "trace", "trace and call", "all"},  # no traces; Python read as JSON
}


def cases(chat: ChatFormat) -> Iterator[tuple[str, list[int]]]:
    """The turns of a format without their end: those in order as its template writes them, then broken ones."""
    label, made = chat.syntax.label, dict[str, str]()
    for name, message in GOOD.items():
        one_call = label == "llama3"
        if message.thinking is not None and not chat.syntax.thinks:
            continue
        if one_call and ((message.tool_calls and message.content) or len(message.tool_calls) > 1):
            continue
        tokens, mask = chat.conversation([Message("user", "?"), message], TOOLS)
        written = [token for token, one in zip(tokens, mask, strict=True) if one][:-1]
        made[name] = chat.tokenizer.decode(written)
        yield name, written
    if label == "llama3":
        return
    call, trace = made["call"], made["trace and call"].replace(made["call"].lstrip("\n"), "")
    opening = trace.removesuffix((chat.syntax.think or ("", ""))[1] + "\n").rstrip("\n")
    opening = opening.removesuffix((chat.syntax.think or ("", ""))[1])
    end = chat.syntax.closes("calls") or chat.syntax.closes("call") or chat.syntax.closes("arguments") or ""
    end = end if call.rstrip("\n").endswith(end) else chat.syntax.closes("list") or end
    broken = {
        "cut in the call": call[: len(call) * 2 // 3],
        "cut in the trace": opening,
        "no end of the call": call.rstrip("\n").removesuffix(end),
        "call in the trace": opening + call,
        "text behind the call": call + " Done.",
    }
    for name, text in broken.items():
        if text:
            yield name, sampled(chat, text)


@pytest.mark.parametrize(("label", "name"), PEERS)
def test_turns_in_order_are_read_as_peers_read_them(label: str, name: str) -> None:
    chat, differs = make_chat(label), DIFFERS.get((label, name), set())
    for case, tokens in cases(chat):
        if case in GOOD:
            mine, message = ours(chat, tokens), GOOD[case]
            assert mine == (
                message.content,
                message.thinking or "",
                [(call.name, call.arguments) for call in message.tool_calls],
            )
            assert (mine != PEERS[label, name](chat, tokens)) == (case in differs), case


HARMONY = [
    "<|channel|>final<|message|>It is 4.",
    "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>It is 4.",
    '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"text": "0042", "number": 1}',
    ' to=functions.f<|channel|>commentary json<|message|>{"text": "x"}',
    "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.g<|message|>{}",
    "<|channel|>commentary<|message|>Let me see.<|end|><|start|>assistant<|channel|>commentary to=functions.g<|message|>{}",
]


@pytest.mark.parametrize("text", HARMONY)
def test_harmony_is_read_as_openai_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """OpenAI's own library, which reads tokens of o200k."""
    ranks = SHARED_DATA / "tokenizers" / "o200k_base.tiktoken.gz"
    if not ranks.is_file():
        pytest.skip("needs o200k_base of ../shared/data beside the repository")
    from openai_harmony import HarmonyEncodingName, Role, load_harmony_encoding

    (tmp_path / "o200k_base.tiktoken").write_bytes(gzip.decompress(ranks.read_bytes()))
    monkeypatch.setenv("TIKTOKEN_ENCODINGS_BASE", str(tmp_path))
    encoding = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
    found = encoding.parse_messages_from_completion_tokens(encoding.encode(text, allowed_special="all"), Role.ASSISTANT)
    theirs = Read("", "", [])
    for message in found:
        said = "".join(part.text for part in message.content)
        if message.recipient is not None:
            theirs.calls.append((message.recipient.removeprefix("functions."), json.loads(said)))
        else:
            name = "thinking" if message.channel == "analysis" else "content"
            theirs = theirs._replace(**{name: getattr(theirs, name) + said})
    chat = ChatFormat(make_tokenizer(SPECIAL["harmony"], template_text("harmony")))
    assert ours(chat, sampled(chat, text)) == theirs


def table() -> str:
    """Cases and agreement, by format and peer."""
    rows = []
    for (label, name), peer in PEERS.items():
        chat, counts, others = make_chat(label), Counter[str](), []
        for case, tokens in cases(chat):
            kind = "in order" if case in GOOD else "broken"
            mine, theirs = ours(chat, tokens), peer(chat, tokens)
            counts[kind] += 1
            counts[f"{kind} equal"] += mine == theirs
            if mine != theirs:
                others.append(f"{case}: {mine} != {theirs}")
        rows.append(
            f"{label:14} {name:13} {counts['in order equal']}/{counts['in order']} {counts['broken equal']}/{counts['broken']}"
        )
        rows += [f"    {each}" for each in others]
    return "\n".join(rows)


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
