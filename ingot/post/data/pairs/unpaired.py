"""Single answers that are good or bad, and the reference point of KTO (algorithms/kto.py).

    z = max(0, mean over the step's rows of log π(y')/ref(y')),   y' = another row's answer, after this row's prompt

y' is that of the row before which has another prompt, chosen once, so the reference's share of z is computed before training.
The policy's share needs one more forward pass over every row of a step. z is that of the whole step: it does not depend on
micro-batches or processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ingot.model.transformer import Transformer
from ingot.post.data.conversations.sequences import PoolSource
from ingot.post.data.pairs.pair import Answer, FileAnswer, answer_marks, mark, number_groups, with_reference
from ingot.post.policy import sequence_logprobs
from ingot.post.processes import ALONE, Processes
from ingot.tokens.batch import TokenSequence
from ingot.workspace.errors import DataError
from ingot.workspace.stage import StageFolder


@dataclass(frozen=True)
class Rated:
    """An answer, and whether it is a good one."""

    answer: Answer
    good: bool


def rated_sequences(
    rows: Sequence[Rated],
    reference: Transformer,
    capacity: int,
    processes: Processes = ALONE,
    folder: StageFolder | None = None,
) -> list[list[TokenSequence]]:
    """For each row its sequence and that of its prompt with another row's answer, both with `reference_logprob`."""
    others = mismatched([row.answer for row in rows], capacity + 1)  # the last token is only predicted
    sequences = [mark(row.answer, good=row.good) for row in rows] + [mark(other, good=True) for other in others]
    sequences = with_reference(sequences, reference, capacity, processes, folder)
    return [list(group) for group in zip(sequences[: len(rows)], sequences[len(rows) :], strict=True)]


def mismatched(answers: Sequence[Answer], longest: int) -> list[FileAnswer]:
    """Each prompt with the answer of the nearest row before it (in a circle) whose prompt is another one; cut to `longest`."""
    split = [_split(answer) for answer in answers]
    if len({tuple(prompt) for prompt, _, _ in split}) < 2:
        raise DataError(
            "all rows have the same prompt: the reference point needs answers to other prompts",
            fix="give rows with at least two different prompts",
        )
    made = []
    for place, (prompt, _, _) in enumerate(split):
        other = place - 1
        while split[other][0] == prompt:
            other -= 1  # Python's negative indices close the circle
        _, answer, marks = split[other]
        made.append(FileAnswer((prompt + answer)[:longest], ([0] * len(prompt) + marks)[:longest]))
    return made


def _split(answer: Answer) -> tuple[list[int], list[int], list[int]]:
    """The prompt, and the rest with its marks."""
    tokens, marks = answer.tokens(), answer.sampled()
    start = marks.index(1)
    return tokens[:start], tokens[start:], marks[start:]


class UnpairedSource(PoolSource):
    """Steps of rated answers, each with the stream `reference_point`.

    `groups` come from `rated_sequences`. `whole` is what z is read from: `model` itself, unless several processes divide that.
    """

    def __init__(
        self,
        groups: Sequence[Sequence[TokenSequence]],
        count: int,
        capacity: int,
        micro_batch_tokens: int,
        seed: int,
        model: Transformer,
        whole: Transformer | None = None,
        processes: Processes = ALONE,
    ) -> None:
        super().__init__(groups, count, capacity, micro_batch_tokens, seed)
        self.model, self.whole, self.processes = model, whole or model, processes

    def draw(self, step: int) -> list[Sequence[TokenSequence]]:
        drawn = super().draw(step)
        point = self.reference_point([other for _, other in drawn])
        return number_groups([[_with_point(row, point)] for row, _ in drawn])

    def reference_point(self, others: Sequence[TokenSequence]) -> float:
        """z of a step with these mismatched answers, by the policy as it is now."""
        self.processes.renew(self.whole, self.model)
        texts = [TokenSequence(other.tokens) for other in others]
        rows = sequence_logprobs(self.whole, texts, self.capacity, processes=self.processes)
        total = sum(
            (value - reference) * one
            for other, row in zip(others, rows, strict=True)
            for value, reference, one in zip(row, other.streams["reference_logprob"], answer_marks(other), strict=True)
        )
        return max(0.0, total / len(others))


def _with_point(row: TokenSequence, point: float) -> TokenSequence:
    return row.with_stream("reference_point", [point * one for one in answer_marks(row)])
