"""IFBench's family `format`: brackets, quotes, lists, indentation, templates and white space."""

from __future__ import annotations

import re
from itertools import pairwise

from ingot.envs.verifiers.instructions.instruction import instruction
from ingot.envs.verifiers.text.words import OUTER, STRIP_PUNCTUATION, sentences, word_set, words

_SINGLE_EMOJI = frozenset("©®‼⁉™ℹ⌚⌛⌨⏏Ⓜ▪▫▶◀↔↕↖↗↘↙↩↪⏩⏪⏫⏬⏭⏮⏯⏰⏱⏲⏳⏸⏹⏺◻◼◽◾⤴⤵⬅⬆⬇⬛⬜⭐⭕〰〽㊗㊙")
_CLOSES = {")": "(", "]": "[", "}": "{"}
_LETTERS = re.compile(r"\W*a\W*b\W*c\W*", re.IGNORECASE)
_APOSTROPHE = re.compile(r"(?<=\w)'(?=\w)")
_MINOR_WORDS = word_set(
    "a an and as at but by for from if in into nor of off on onto or over per so the to up upon via vs with yet"
)


@instruction("format:parentheses")
def parentheses(answer: str) -> bool:
    """Brackets of any kind, closed in order, at least five inside each other."""
    opened: list[tuple[str, int]] = []  # each with the depth of what was closed inside it
    for character in answer:
        if character in _CLOSES.values():
            opened.append((character, 0))
        elif character in _CLOSES:
            if not opened or opened[-1][0] != _CLOSES[character]:
                opened.clear()  # what was open is spoilt
                continue
            depth = opened.pop()[1] + 1
            if depth >= 5:
                return True
            if opened:
                opened[-1] = (opened[-1][0], max(opened[-1][1], depth))
    return False


@instruction("format:quotes")
def quotes(answer: str) -> bool:
    """Double and single quotes inside each other, at least three deep; apostrophes inside words are none."""
    opened: list[str] = []
    deepest = 0
    for character in re.sub(r"[^'\"]", "", _APOSTROPHE.sub("", _straight(answer))):
        if opened and opened[-1] == character:
            opened.pop()
            if deepest - len(opened) >= 3:
                return True
        else:
            opened.append(character)
            deepest = max(deepest, len(opened))
    return False


@instruction("format:quote_unquote")
def quote_unquote(answer: str) -> bool:
    """No quoted phrase follows directly on another, and none is the end: words explain each of them."""
    text = "".join(_straight(answer).replace("'\"'", "").split())
    return '""' not in text and not text.strip("0123456789!#$%&'()*+,-./:;<=>?@[\\]^_`{|}~").endswith('"')


@instruction("format:options")
def options(answer: str, options: str) -> bool:
    """Exactly one of the options, given as "yes/no", "this or that" or "a, b"; lettered ones also with their brackets."""
    separator = "/" if "/" in options else r"\bor\b" if re.search(r"\bor\b", options) else ","
    choices = [choice.strip() for choice in re.split(separator, options)]
    if _LETTERS.match(options):
        return answer in choices
    return answer.strip(OUTER).lower() in [choice.strip(OUTER).lower() for choice in choices]


@instruction("format:newline")
def newline(answer: str) -> bool:
    """Every word has a line of its own."""
    lines = [line.split() for line in answer.translate(STRIP_PUNCTUATION).split("\n")]
    return all(len(line) <= 1 for line in lines)


@instruction("format:emoji")
def emoji(answer: str) -> bool:
    """Every sentence ends with an emoji, before its mark or right behind it."""
    found = [sentence.translate(STRIP_PUNCTUATION).strip() for sentence in sentences(answer)]
    following = [*found[1:], ""]
    return all(
        any(map(is_emoji, sentence[-2:])) or is_emoji(after[:1])
        for sentence, after in zip(found, following, strict=True)
    )


@instruction("format:line_indent")
def line_indent(answer: str) -> bool:
    """Each line is indented further than the one before."""
    lines = [line for line in answer.split("\n") if line.strip()]
    indents = [len(line) - len(line.lstrip(" ")) for line in lines]
    return all(before < after for before, after in pairwise(indents))


@instruction("format:list")
def list_of_items(answer: str, sep: str) -> bool:
    """At least two lines begin with the separator."""
    return sum(line.lstrip().startswith(sep) for line in answer.split("\n")) >= 2


@instruction("format:thesis")
def thesis(answer: str) -> bool:
    """Something in HTML's italics, and text behind it."""
    return _italics(answer, "i") or _italics(answer, "em")


@instruction("format:sub-bullets")
def sub_bullets(answer: str) -> bool:
    """There are lines with *, and behind each of them, before the next, a line with -."""
    marks = "".join(line.lstrip()[:1] for line in answer.split("\n") if line.lstrip()[:1] in ("*", "-"))
    return "*" in marks and "**" not in marks and not marks.endswith("*")


@instruction("format:no_bullets_bullets")
def no_bullets_bullets(answer: str) -> bool:
    """At least two sentences that end in a period, then at least two lines with *."""
    lines = [line.strip() for line in answer.split("\n")]
    bullets = [number for number, line in enumerate(lines) if line.startswith("*")]
    before = sentences("\n".join(lines[: bullets[0]])) if bullets else []
    return len(bullets) >= 2 and sum(sentence.endswith(".") for sentence in before) >= 2


@instruction("format:title_case")
def title_case(answer: str) -> bool:
    """Every word but small ones (of, the, and) begins with a capital; the first word does in any case."""
    found = [word for word in words(answer) if word[0].isalpha()]
    return all(not word[0].islower() or (number > 0 and word in _MINOR_WORDS) for number, word in enumerate(found))


@instruction("format:output_template")
def output_template(answer: str) -> bool:
    """The three headings of the template in order, the first one at the beginning."""
    first, second, third = (answer.find(head) for head in ("My Answer:", "My Conclusion:", "Future Outlook:"))
    return not answer[: max(first, 0)].strip() and 0 <= first < second < third


@instruction("format:no_whitespace")
def no_whitespace(answer: str) -> bool:
    """There is no white space at all."""
    return not any(map(str.isspace, answer))


def _italics(answer: str, tag: str) -> bool:
    _, opened, rest = answer.partition(f"<{tag}>")
    inside, closed, after = rest.partition(f"</{tag}>")
    return bool(opened and inside.strip() and closed and after.strip())


def is_emoji(character: str) -> bool:
    """Whether the character is of Unicode's pictographic blocks, or one of the emoji outside of them."""
    return len(character) == 1 and (
        "\U0001f000" <= character <= "\U0001faff" or "\u2600" <= character <= "\u27bf" or character in _SINGLE_EMOJI
    )


def _straight(text: str) -> str:
    """Curly quotes made straight."""
    return text.translate({0x201C: '"', 0x201D: '"', 0x2018: "'", 0x2019: "'"})
