"""IFEval's family `combination`: two answers in one, and the prompt repeated before the answer."""

from __future__ import annotations

from ingot.envs.verifiers.instructions.instruction import instruction


@instruction("combination:two_responses")
def two_responses(answer: str) -> bool:
    """Two different answers with six asterisks between them; more asterisks may open or close the whole."""
    parts = [part.strip() for part in answer.split("******")]
    found = [part for part in parts if part]
    return all(parts[1:-1]) and len(found) == 2 and found[0] != found[1]


@instruction("combination:repeat_prompt")
def repeat_prompt(answer: str, prompt_to_repeat: str) -> bool:
    """The answer begins with the prompt, in any case."""
    return answer.strip().lower().startswith(prompt_to_repeat.strip().lower())
