"""Quotes text for a judge so that it cannot pass for anything but quoted text.

    [[BEGIN ANSWER 3f9c0a52d1e84b77]]
    | It is 4.
    | [ [END ANSWER ] ]          (a forged mark: its brackets are broken, and the code is gone)
    [[END ANSWER 3f9c0a52d1e84b77]]

The code is drawn anew for every request, so what is quoted cannot know it. Inside the quotation
  * every line begins with a bar, whatever character ends lines, so that none begins with a role ("System:", "### Instruction");
  * control tokens of chat templates (<|im_start|>, [INST], <start_of_turn>, <think>, <s>) are broken by a blank, so that no
    tokenizer reads them as tokens;
  * invisible characters (zero-width, direction marks, tags and variation selectors that can spell letters) are removed;
  * the marks' own brackets are broken and the code is removed.
Ordinary text, code and markdown stay as they are.
"""

from __future__ import annotations

import re
import secrets
import unicodedata

LONGEST = 60_000
"""Characters; the middle of a longer text is left out, so that the request fits into the judge's context."""
_LINE_END = re.compile("\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_SPELLING = re.compile("[\ufe00-\ufe0d\U000e0000-\U000e0fff]")  # those before U+FE0E choose no emoji
_CONTROL = re.compile(
    r"<\|[^<>|\n]{1,64}\|>"  # ChatML, Llama 3, gpt-oss and their like
    r"|<｜[^<>\n]{1,64}｜>"  # DeepSeek writes them with full-width bars
    r"|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\]"
    r"|<</?SYS>>"
    r"|</?(?:s|bos|eos|pad|unk|think|thinking|tool_call|tool_response|start_of_turn|end_of_turn|system|user|assistant)>",
    re.IGNORECASE,
)


def draw_code() -> str:
    """A code that no text can know beforehand: 64 random bits."""
    return secrets.token_hex(8)


def quote(text: str, name: str, code: str) -> str:
    """The text between marks that carry its name and the code."""
    lines = (f"| {line}" for line in _LINE_END.split(neutralise(text, code)))
    return "\n".join([f"[[BEGIN {name} {code}]]", *lines, f"[[END {name} {code}]]"])


def neutralise(text: str, code: str) -> str:
    """The text without what a judge's model or template could take for structure."""
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]}\n(… {len(text) - LONGEST:,} characters left out …)\n{text[-LONGEST // 2 :]}"
    text = "".join(character for character in text if character in "\n\t" or _shows(character))
    while (found := _CONTROL.search(text)) or code in text or "[[" in text or "]]" in text:
        text = _CONTROL.sub(_break, text) if found else text
        text = text.replace(code, "").replace("[[", "[ [").replace("]]", "] ]")
    return text


def _shows(character: str) -> bool:
    """Line ends stay for now; other controls and invisible characters go."""
    if _LINE_END.match(character):
        return True
    return unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Co") and not _SPELLING.match(character)


def _break(found: re.Match[str]) -> str:
    """A blank behind the first character: < |im_start|>."""
    return f"{found[0][0]} {found[0][1:]}"
