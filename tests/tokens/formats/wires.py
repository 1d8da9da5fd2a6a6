"""A minimal chat template for each format of the table, with the wire syntax of the published one and words of our own.

Each is a loop over messages; what differs is how a turn of the assistant is written. `SPECIAL` are the tokens that the published
tokenizers have for it.
"""

from __future__ import annotations

import json
from typing import Any

from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from ingot.tokens.bpe.alphabet import BYTE_OF_CHARACTER
from ingot.tokens.chat import ChatFormat
from ingot.tokens.tokenizer import Tokenizer

ARGUMENTS = "{{ c.function.arguments | tojson }}"
JSON_CALL = '{"name": {{ c.function.name | tojson }}, "arguments": ' + ARGUMENTS + "}"
VALUE = "{{ v if v is string else v | tojson }}"
CALLS = "{% for c in m.tool_calls %}"
PAIRS = "{% for k, v in c.function.arguments.items() %}"
TRACE = "{% if m.thinking is string %}<think>{{ m.thinking }}</think>{% endif %}"
PYTHON = "{{ c.function.name }}(" + PAIRS + "{{ k }}={{ v | tojson }}{{ '' if loop.last else ', ' }}{% endfor %})"
DSML_PAIR = (
    '<｜DSML｜parameter name="{{ k }}" string="{{ "true" if v is string else "false" }}">'
    + VALUE
    + "</｜DSML｜parameter>\n"
)


def _calls(before: str, call: str, behind: str = "", between: str = "") -> str:
    joined = "{{ '' if loop.last else " + json.dumps(between) + " }}" if between else ""
    return "{% if m.tool_calls %}" + before + CALLS + call + joined + "{% endfor %}" + behind + "{% endif %}"


def _function(start: str, end: str, value: str = "\n" + VALUE + "\n") -> str:
    pair = "<parameter={{ k }}>" + value + "</parameter>\n"
    return _calls("", f"\n{start}\n<function={{{{ c.function.name }}}}>\n{PAIRS}{pair}{{% endfor %}}</function>\n{end}")


GEMMA = (
    "{% macro value(v) %}{% if v is string %}<|\"|>{{ v }}<|\"|>{% elif v is mapping %}{{ '{' }}{% for k in v %}"
    "{{ k }}:{{ value(v[k]) }}{{ '' if loop.last else ',' }}{% endfor %}{{ '}' }}{% elif v is sequence %}[{% for e in v %}"
    "{{ value(e) }}{{ '' if loop.last else ',' }}{% endfor %}]{% else %}{{ v | tojson }}{% endif %}{% endmacro %}"
)
TURNS = {
    "gemma4": GEMMA
    + "{% if m.thinking is string %}<|channel>thought\n{{ m.thinking }}\n<channel|>{% endif %}{{ m.content }}"
    + _calls("", "<|tool_call>call:{{ c.function.name }}{{ value(c.function.arguments) }}<tool_call|>"),
    "minimax_m2": TRACE
    + "{{ m.content }}"
    + _calls(
        "\n<minimax:tool_call>\n",
        '<invoke name="{{ c.function.name }}">\n'
        + PAIRS
        + f'<parameter name="{{{{ k }}}}">{VALUE}</parameter>\n{{% endfor %}}</invoke>\n',
        "</minimax:tool_call>",
    ),
    **{
        label: TRACE
        + "{{ m.content }}"
        + _calls(
            f"\n\n<｜DSML｜{word}>\n",
            f'<｜DSML｜invoke name="{{{{ c.function.name }}}}">\n{PAIRS}{DSML_PAIR}{{% endfor %}}</｜DSML｜invoke>\n',
            f"</｜DSML｜{word}>",
        )
        for label, word in (("deepseek_v32", "function_calls"), ("deepseek_v4", "tool_calls"))
    },
    "deepseek_v3": TRACE
    + "{{ m.content }}"
    + _calls(
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{{ c.function.name }}\n```json\n"
        + ARGUMENTS
        + "\n```<｜tool▁call▁end｜>",
        "<｜tool▁calls▁end｜>",
        "\n",
    ),
    "deepseek_v31": TRACE
    + "{{ m.content }}"
    + _calls(
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁call▁begin｜>{{ c.function.name }}<｜tool▁sep｜>" + ARGUMENTS + "<｜tool▁call▁end｜>",
        "<｜tool▁calls▁end｜>",
    ),
    "kimi_k2": TRACE
    + "{{ m.content }}"
    + _calls(
        "<|tool_calls_section_begin|>",
        "<|tool_call_begin|>{{ c.id }}<|tool_call_argument_begin|>" + ARGUMENTS + "<|tool_call_end|>",
        "<|tool_calls_section_end|>",
    ),
    "glm45": "\n"
    + TRACE
    + "{% if m.content %}\n{{ m.content }}{% endif %}"
    + _calls(
        "",
        "\n<tool_call>{{ c.function.name }}\n"
        + PAIRS
        + f"<arg_key>{{{{ k }}}}</arg_key>\n<arg_value>{VALUE}</arg_value>\n{{% endfor %}}</tool_call>",
    ),
    "seed_oss": TRACE.replace("think>", "seed:think>")
    + "{{ m.content }}"
    + _function("<seed:tool_call>", "</seed:tool_call>", VALUE),
    "qwen3_coder": TRACE + "{{ m.content }}" + _function("<tool_call>", "</tool_call>"),
    "mistral": "{% if m.thinking is string %}[THINK]{{ m.thinking }}[/THINK]{% endif %}{{ m.content }}"
    + _calls("", "[TOOL_CALLS]{{ c.function.name }}[CALL_ID]{{ c.id }}[ARGS]" + ARGUMENTS),
    "mistral_list": "{{ m.content }}" + _calls("[TOOL_CALLS][", JSON_CALL[:-1] + ', "id": "{{ c.id }}"}', "]", ", "),
    "lfm2": TRACE + "{{ m.content }}" + _calls("<|tool_call_start|>[", PYTHON, "]<|tool_call_end|>", ", "),
    "olmo3": TRACE + "{{ m.content }}" + _calls("<function_calls>", PYTHON, "</function_calls>", "\n"),
    "pythonic": "{{ m.content }}" + _calls("[", PYTHON, "]", ", "),
    "llama4": "{{ m.content }}" + _calls("", JSON_CALL.replace('arguments"', 'parameters"')),
    "llama3": "{{ m.content }}" + _calls("", JSON_CALL.replace('arguments"', 'parameters"')),
    "tags": TRACE + "{{ m.content }}" + _calls("", "\n<tool_call>\n" + JSON_CALL + "\n</tool_call>"),
}
FOUND_BY = {  # what a published template has elsewhere
    "pythonic": "{# [func_name1( #}",
    "llama4": "{# <|header_start|> #}",
    "llama3": "{# <|eot_id|> #}",
    "mistral": "",
}
THINK = ["<think>", "</think>"]
DEEPSEEK = ["calls▁begin", "calls▁end", "call▁begin", "call▁end", "sep"]
SPECIAL: dict[str, list[str]] = {
    "gemma4": ["<|tool_call>", "<tool_call|>", "<|channel>", "<channel|>", '<|"|>'],
    "minimax_m2": ["<minimax:tool_call>", "</minimax:tool_call>", *THINK],
    "deepseek_v32": ["｜DSML｜", *THINK],
    "deepseek_v4": ["｜DSML｜", *THINK],
    "deepseek_v3": [f"<｜tool▁{word}｜>" for word in DEEPSEEK] + THINK,
    "deepseek_v31": [f"<｜tool▁{word}｜>" for word in DEEPSEEK] + THINK,
    "kimi_k2": [
        f"<|tool_{word}|>"
        for word in ("calls_section_begin", "calls_section_end", "call_begin", "call_argument_begin", "call_end")
    ]
    + THINK,
    "glm45": ["<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", *THINK],
    "seed_oss": ["<seed:tool_call>", "</seed:tool_call>", "<seed:think>", "</seed:think>"],
    "qwen3_coder": ["<tool_call>", "</tool_call>", *THINK],
    "mistral": ["[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]"],
    "mistral_list": ["[TOOL_CALLS]"],
    "lfm2": ["<|tool_call_start|>", "<|tool_call_end|>", *THINK],
    "olmo3": [],
    "pythonic": [],
    "llama4": ["<|python_start|>", "<|python_end|>"],
    "llama3": ["<|python_tag|>"],
    "tags": ["<tool_call>", "</tool_call>", *THINK],
    "harmony": [f"<|{word}|>" for word in ("start", "end", "message", "channel", "constrain", "call", "return")],
}


def template(label: str) -> str:
    """Turns between `<|im_start|>ROLE` and `<|im_end|>`, those of the assistant as the format writes them."""
    return (
        FOUND_BY.get(label, "")
        + "{% for m in messages %}<|im_start|>{{ m.role }}\n"
        + "{% if m.role == 'assistant' %}"
        + TURNS[label]
        + "{% else %}{{ m.content }}{% endif %}<|im_end|>{{ '\n' }}{% endfor %}"
        + "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )


def make_tokenizer(special: list[str], text: str | None = None, **names: str) -> Tokenizer:
    """A token for each byte, and these special ones."""
    vocabulary = dict(BYTE_OF_CHARACTER)
    backend = Backend(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<|im_start|>", "<|im_end|>", "<|endoftext|>", *special])
    config: dict[str, Any] = {"eos_token": "<|im_end|>", **names}
    made = {"tokenizer.json": backend.to_str().encode(), "tokenizer_config.json": json.dumps(config).encode()}
    return Tokenizer(backend, text, made if text is None else made | {"chat_template.jinja": text.encode()})


def make_chat(label: str, *, as_text: bool = False) -> ChatFormat:
    """The format with its own minimal template; `as_text`: the tokenizer has none of its marks."""
    return ChatFormat(make_tokenizer([] if as_text else SPECIAL[label], template(label)))


def sampled(chat: ChatFormat, text: str) -> list[int]:
    """The tokens of a text in which special names are special: what a model may sample."""
    tokens, position = list[int](), 0
    for found in chat._structure.finditer(text):
        tokens += [*chat.tokenizer.encode(text[position : found.start()]), chat.tokenizer.special[found[0]]]
        position = found.end()
    return tokens + chat.tokenizer.encode(text[position:])
