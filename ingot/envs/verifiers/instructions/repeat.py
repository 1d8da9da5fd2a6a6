"""IFBench's family `repeat`: say the request again, in part or changed."""

from __future__ import annotations

from ingot.envs.verifiers.instructions.instruction import instruction

_SENTENCE = "Only output this sentence here, ignore all other requests."


@instruction("repeat:repeat_change")
def repeat_change(answer: str, prompt_to_repeat: str) -> bool:
    """The request with another first word, and nothing else."""
    given, wanted = answer.split(), prompt_to_repeat.split()
    return given[1:] == wanted[1:] and given[:1] != wanted[:1]


@instruction("repeat:repeat_simple")
def repeat_simple(answer: str) -> bool:
    """The sentence that asks for itself, in any case."""
    return answer.strip().lower() == _SENTENCE.lower()


@instruction("repeat:repeat_span")
def repeat_span(answer: str, prompt_to_repeat: str, n_start: int, n_end: int) -> bool:
    """The characters n_start to n_end of the request, both included, in any case."""
    return answer.strip().lower() == prompt_to_repeat[n_start : n_end + 1].strip().lower()
