"""CoQA: a conversation about a story (Reddy et al. 2019): the last question, after the earlier ones with their answers.

Several people answered each question. As the harness has it, each of them is left out once, and the model's answer is compared
with the others; so people and models are measured alike. Only the first line counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from pydantic import Field

from ingot.envs.rows import Row, need
from ingot.evals.bases.identity import digest
from ingot.evals.bases.short_answers import Measure, Short, ShortAnswerSuite, exact_match, f1


def left_out(measure: Measure) -> Measure:
    """The mean of a measure over all ways to leave one accepted answer out."""

    def mean(written: str, accepted: Sequence[str]) -> float:
        line = written.strip().split("\n")[0]
        if len(accepted) == 1:
            return measure(line, accepted)
        parts = [[*accepted[:number], *accepted[number + 1 :]] for number in range(len(accepted))]
        return sum(measure(line, part) for part in parts) / len(accepted)

    return mean


class Coqa(ShortAnswerSuite):
    """CoQA: the last question of a conversation about a story."""

    local: ClassVar[tuple[str, ...]] = ("coqa/*.jsonl*", "core_icl/coqa_2000.jsonl*")
    hub: ClassVar[tuple[str, ...]] = ("hf:EleutherAI/coqa:validation",)
    measures: ClassVar[Mapping[str, Measure]] = {"exact_match": left_out(exact_match), "f1": left_out(f1)}
    stop: ClassVar[tuple[str, ...]] = ("\nQ:",)
    max_new_tokens: int = Field(256, ge=1, description="tokens of an answer at most")

    def short(self, row: Row, place: str) -> Short:
        """The conversation of a row."""
        story = need(row, "story", str, place)
        if "previous_qa" in row:
            turns = [(turn["question"], turn["answer"]) for turn in row["previous_qa"]]
            question, accepted = need(row, "question", str, place), need(row, "answers", list, place)
        else:
            questions, answers = row["questions"]["input_text"], row["answers"]["input_text"]
            turns, question = list(zip(questions[:-1], answers[:-1], strict=True)), questions[-1]
            others = (row.get("additional_answers") or {}).values()
            accepted = [answers[-1], *(other["input_text"][len(questions) - 1] for other in others)]
        said = "".join(f"Q: {asked}\n\nA: {answer}\n\n" for asked, answer in turns)
        return Short(f"{story}\n\n{said}Q: {question}\n\nA:", distinct(accepted), cluster=digest(story))


def distinct(answers: Sequence[str]) -> tuple[str, ...]:
    """The answers without those that differ from an earlier one in case only."""
    seen: dict[str, str] = {}
    for answer in answers:
        seen.setdefault(answer.lower(), answer)
    return tuple(seen.values())
