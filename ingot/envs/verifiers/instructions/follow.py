"""Whether an answer follows the instructions of its prompt: strict and loose, as IFEval defines them.

Strict reads the answer as it is. Loose is followed if any of eight variants is: without its first line, its last line or
both ("Sure, here it is:"), each with and without markdown's asterisks. Accuracy is reported by prompt (all of its instructions
are followed) and by instruction. Paper: Zhou et al. 2023, "Instruction-following evaluation for large language models",
arXiv 2311.07911. IFBench (Pyatkin et al. 2025, arXiv 2507.02833) reports the prompt-level loose number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ingot.envs.verifiers.instructions.instruction import Instruction


@dataclass(frozen=True)
class Followed:
    """For each instruction of one prompt, whether its answer follows it."""

    strict: tuple[bool, ...]
    loose: tuple[bool, ...]


def follow(answer: str, instructions: Sequence[Instruction]) -> Followed:
    """Check one answer against the instructions of its prompt."""
    strict = tuple(each.follows(answer) for each in instructions)
    variants = loose_variants(answer)
    loose = tuple(
        strictly or any(map(each.follows, variants)) for strictly, each in zip(strict, instructions, strict=True)
    )
    return Followed(strict, loose)


def loose_variants(answer: str) -> list[str]:
    """The answer without its first line, last line and both, and all four without asterisks."""
    lines = answer.split("\n")
    shorter = [answer, *("\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1]))]
    return list(dict.fromkeys([*shorter, *(text.replace("*", "") for text in shorter)]))


def accuracies(answers: Sequence[Followed]) -> dict[str, float]:
    """IFEval's four numbers over the answers of a data set."""
    single = [bit for one in answers for bit in one.strict], [bit for one in answers for bit in one.loose]
    return {
        "prompt_strict": _mean([all(one.strict) for one in answers]),
        "instruction_strict": _mean(single[0]),
        "prompt_loose": _mean([all(one.loose) for one in answers]),
        "instruction_loose": _mean(single[1]),
    }


def _mean(bits: Sequence[bool]) -> float:
    return sum(bits) / len(bits) if bits else float("nan")
