"""IFEval's family `detectable_content`: placeholders and a postscript."""

from __future__ import annotations

import re

from ingot.envs.verifiers.instructions.instruction import instruction

_POSTSCRIPTS = {"P.S.": r"p\.\s?s\.", "P.P.S": r"p\.\s?p\.\s?s"}


@instruction("detectable_content:number_placeholders")
def number_placeholders(answer: str, num_placeholders: int) -> bool:
    """At least so many placeholders in square brackets, such as [address]."""
    return sum(map(_placeholders, answer.split("\n"))) >= num_placeholders


@instruction("detectable_content:postscript")
def postscript(answer: str, postscript_marker: str) -> bool:
    """The marker occurs, in any case; blanks between the letters of the usual ones are allowed."""
    marker = postscript_marker.strip()
    return re.search(_POSTSCRIPTS.get(marker, re.escape(marker.lower())), answer.lower()) is not None


def _placeholders(line: str) -> int:
    """How often the line opens a bracket and closes it."""
    count = end = 0
    while (start := line.find("[", end)) >= 0 and (end := line.find("]", start)) >= 0:
        count, end = count + 1, end + 1
    return count
