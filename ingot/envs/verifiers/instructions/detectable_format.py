"""IFEval's family `detectable_format`: bullets, highlights, sections, a title, JSON, and an answer of fixed wording."""

from __future__ import annotations

import json
import re

from ingot.envs.verifiers.instructions.instruction import instruction

_ANSWERS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
_HIGHLIGHT, _DOUBLE_HIGHLIGHT = re.compile(r"\*([^\n*]*)\*"), re.compile(r"\*\*([^\n*]*)\*\*")
_FENCES = ("```json", "```Json", "```JSON", "```")


@instruction("detectable_format:number_bullet_lists")
def number_bullet_lists(answer: str, num_bullets: int) -> bool:
    """Exactly so many lines that begin with one asterisk and something behind it, or with a hyphen."""
    lines = [line.lstrip() for line in answer.split("\n")]
    starred = sum(line.startswith("*") and line[1:2] not in ("", "*") for line in lines)
    return starred + sum(line.startswith("-") for line in lines) == num_bullets


@instruction("detectable_format:constrained_response")
def constrained_response(answer: str) -> bool:
    """One of three fixed answers is given."""
    return any(fixed in answer for fixed in _ANSWERS)


@instruction("detectable_format:number_highlighted_sections")
def number_highlighted_sections(answer: str, num_highlights: int) -> bool:
    """At least so many highlights *like this* or **like this**."""
    found = [*_HIGHLIGHT.findall(answer), *_DOUBLE_HIGHLIGHT.findall(answer)]
    return sum(1 for text in found if text.strip()) >= num_highlights


@instruction("detectable_format:multiple_sections")
def multiple_sections(answer: str, section_spliter: str, num_sections: int) -> bool:
    """At least so many section marks: the word and a number, as in "Section 2"."""
    return len(re.findall(rf"{re.escape(section_spliter.strip())}\s?\d+", answer)) >= num_sections


@instruction("detectable_format:json_format")
def json_format(answer: str) -> bool:
    """The whole answer is JSON, with or without a markdown fence around it."""
    text = answer.strip()
    for fence in _FENCES:
        text = text.removeprefix(fence)
    try:
        json.loads(text.removesuffix("```").strip())
    except (ValueError, RecursionError):
        return False
    return True


@instruction("detectable_format:title")
def title(answer: str) -> bool:
    """Some line holds a title <<like this>>."""
    return any(map(_has_title, answer.split("\n")))


def _has_title(line: str) -> bool:
    """From the first opening to the last closing brackets there is something else than brackets and blanks."""
    start, end = line.find("<<"), line.rfind(">>")
    return 0 <= start < end - 2 and bool(line[start:end].lstrip("<").rstrip(">").strip())
