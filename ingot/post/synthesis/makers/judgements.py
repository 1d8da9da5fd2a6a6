r"""Judgements of given answers: the writer says whether an answer is right, and a verifier says whether the writer is.

The rows have a question, an answer and a reference; the truth about the answer comes from the `accuracy` filter's verifiers. An
attempt is kept if its verdict, \boxed{right} or \boxed{wrong}, is true: traces of checking instead of solving, one of Hermes 4's
kinds of data about reasoning (its DataForge trains on the judge's calls too, arXiv 2508.18255).
"""

from __future__ import annotations

from pydantic import Field

from ingot.envs.environment import reward
from ingot.envs.episode import Episode
from ingot.envs.rows import Row
from ingot.envs.task import Task
from ingot.envs.verifiers.math.same_answer import extract_answer
from ingot.post.data.conversations.row_forms import conversations_of
from ingot.post.data.filters.accuracy import AccuracyFilter
from ingot.post.synthesis.maker import Maker, origin

REQUEST = (
    "Somebody answered a question. Check the answer step by step, and say at the end \\boxed{{right}} or \\boxed{{wrong}}.\n\n"
    "<question>\n{question}\n</question>\n\n<answer>\n{answer}\n</answer>"
)


class Judgements(Maker):
    """Verdicts on the answers of the files, kept where they are true."""

    verifier: str = Field("math", description="as `verifier` of the filter accuracy: what knows the truth")
    column: str = Field("reference", description="the column of the reference")

    def task_of(self, row: Row, place: str) -> Task | None:
        found = next(conversations_of(row, self.form), None)
        if found is None or not found.answers or (self.verifier == "math" and row.get(self.column) is None):
            return None
        wrong = AccuracyFilter(verifier=self.verifier, column=self.column, unknown="keep").reason(found)
        text = REQUEST.format(question=found.question, answer=found.answers[-1].content)
        return self.ask(text, "wrong" if wrong else "right", thinking=self.thinking, data=origin(row, place))

    @reward()
    def correct(self, episode: Episode) -> float:
        """Whether the verdict is true, and no filter drops the conversation."""
        return float(extract_answer(episode.answer) == episode.task.answer) * super().correct(episode)
