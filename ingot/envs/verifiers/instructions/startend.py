"""IFEval's family `startend`: how the answer begins and ends."""

from __future__ import annotations

from ingot.envs.verifiers.instructions.instruction import instruction


@instruction("startend:end_checker")
def end_checker(answer: str, end_phrase: str) -> bool:
    """The answer ends with the phrase, in any case; a closing quotation mark may follow."""
    return answer.strip().strip('"').lower().endswith(end_phrase.strip().lower())


@instruction("startend:quotation")
def quotation(answer: str) -> bool:
    """The whole answer stands in double quotation marks."""
    text = answer.strip()
    return len(text) > 1 and text[0] == text[-1] == '"'
