"""IFEval's family `punctuation`."""

from __future__ import annotations

from ingot.envs.verifiers.instructions.instruction import instruction


@instruction("punctuation:no_comma")
def no_comma(answer: str) -> bool:
    """There is no comma."""
    return "," not in answer
