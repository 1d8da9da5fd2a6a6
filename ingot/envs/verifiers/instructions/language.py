"""IFEval's family `language`: the whole answer is in one language."""

from __future__ import annotations

from ingot.envs.verifiers.instructions.instruction import instruction
from ingot.envs.verifiers.text.language import in_language


@instruction("language:response_language")
def response_language(answer: str, language: str) -> bool:
    """The answer is in the language of this ISO 639-1 code."""
    return in_language(answer, language)
