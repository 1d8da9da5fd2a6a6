"""Drops conversations whose last answer is not the one that the row has as a reference, by a verifier.

    math           the marked answer (a box, ####, "the answer is") equals the reference as mathematics (envs/verifiers/math/)
    text           the whole answer is the reference, up to outer space
    instructions   the answer follows IFEval's instructions that the row lists (instruction_id_list, kwargs)
    file.py:check  a function of yours: check(answer, row) -> whether it is right

OLMo 3 and Hermes 4 keep only traces that a verifier accepts, where there is one (arXiv 2512.13961, 2508.18255).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from ingot.post.data.conversations.conversation_filter import ConversationFilter
from ingot.workspace.functions import FunctionName
from ingot.workspace.outside import is_outside, load_outside

if TYPE_CHECKING:
    from ingot.post.data.conversations.conversation import Conversation

BUILT_IN = ("math", "text", "instructions")
VERIFIER = FunctionName("verifier of answers", "check(answer, row)", BUILT_IN)


class AccuracyFilter(ConversationFilter):
    """Answers that a verifier finds wrong."""

    verifier: Annotated[str, VERIFIER] = Field(
        "math", description=f"{', '.join(BUILT_IN)}, or a function of yours as file.py:check"
    )
    column: str = Field("answer", description="the column of the reference; a text after #### in it, if there is one")
    unknown: Literal["keep", "drop"] = Field("keep", description="rows without a reference")

    def reason(self, conversation: Conversation) -> str | None:
        row = conversation.row
        answer = conversation.answers[-1].content if conversation.answers else ""
        if is_outside(self.verifier):
            return None if load_outside(self.verifier)(answer, dict(row)) else "a wrong answer"
        needed = "instruction_id_list" if self.verifier == "instructions" else self.column
        if row.get(needed) is None:
            return f"no column {needed}" if self.unknown == "drop" else None
        if self.verifier == "instructions":
            return self._not_followed(answer, conversation)
        reference = str(row[self.column])
        return None if self._same(answer, reference) else f"the answer is not {reference[-100:]!r}"

    def _same(self, answer: str, reference: str) -> bool:
        from ingot.envs.verifiers.math.same_answer import extract_answer, same_answer

        if self.verifier == "text":
            return answer.strip() == reference.strip()
        given = extract_answer(answer, last_number=True)
        return given is not None and same_answer(given, extract_answer(reference) or reference)

    def _not_followed(self, answer: str, conversation: Conversation) -> str | None:
        from ingot.envs.verifiers.instructions.instruction import find_instruction

        row = conversation.row
        for id, kwargs in zip(row["instruction_id_list"], row["kwargs"], strict=True):
            if not find_instruction(id, kwargs, "kwargs").follows(answer):
                return f"{id} is not followed"
        return None
