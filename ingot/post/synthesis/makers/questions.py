"""Questions to given answers: the writer is shown a text and writes what somebody asked to get it.

Instruction backtranslation (Li et al. 2023, arXiv 2308.06259), a node of Hermes 4's DataForge (arXiv 2508.18255): the answer
is a text that people wrote, the question is made. What is learnt is the question and the given text, unchanged; or, with
`learn_asking`, how the question was written: Hermes 4 trains on the calls in between, too.
"""

from __future__ import annotations

from pydantic import Field

from ingot.envs.episode import Episode
from ingot.envs.rows import Row
from ingot.envs.task import Task
from ingot.post.data.conversations.conversation import Conversation
from ingot.post.data.conversations.row_forms import conversations_of
from ingot.post.synthesis.maker import Maker, origin
from ingot.tokens.chat import Message

REQUEST = (
    "Below is an answer that an assistant gave. Write the one request of a user that it answers completely: with everything that "
    "the answer takes for granted, and without giving it away. Write the request alone.\n\n<answer>\n{text}\n</answer>"
)


class Questions(Maker):
    """The question to each answer of the files, written by the writer."""

    thinking: bool = Field(False, description="the writer thinks before it writes the question")
    learn_asking: bool = Field(
        False, description="what is learnt is how the question was written, instead of its answer"
    )

    def task_of(self, row: Row, place: str) -> Task | None:
        found = next(conversations_of(row, self.form), None)
        if found is None or not found.answers:
            return None
        text = found.answers[-1].content
        return self.ask(REQUEST.format(text=text), text, thinking=self.thinking, data=origin(row, place))

    def conversation(self, episode: Episode) -> Conversation:
        if self.learn_asking:
            return super().conversation(episode)
        question = Message("user", episode.answer.strip())
        return Conversation([question, Message("assistant", episode.task.answer)], row=episode.task.data["row"])
