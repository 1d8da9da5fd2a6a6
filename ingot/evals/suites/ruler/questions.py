"""Question answering: the paragraph with the answer stands among others.

A row of a file is a question of SQuAD or HotpotQA, in one of these forms:

    {"question", "context", "answers", "title"}      SQuAD by rows; `answers` a list, or {"text": […]} as on the hub
    {"context": "Title: …\\nBackground: …\\nQuestion: …\\nAnswer:", "answers"}       the same written out as a prompt
    {"question", "answer", "context"}                HotpotQA; `context` pairs of a title and sentences, or both as columns

Other paragraphs of the same article come first as distractors, then those of any.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ingot.evals.suites.ruler.sample import PromptBudget, RulerSample, draw, largest_size
from ingot.workspace.errors import DataError, RecipeError

TEXT = (
    "Answer the question based on the given documents. Only give me the answer and do not output any other words.\n\nThe "
    "following are given documents.\n\n{context}\n\nAnswer the question based on the given documents. Only give me the answer "
    "and do not output any other words.\n\nQuestion: {question}"
)
START = "Answer:"
STEP = 10
WRITTEN = re.compile(r"(?:Title: .*\n)?Background: (?P<context>.*)\nQuestion: (?P<question>.*)\nAnswer:", re.DOTALL)


@dataclass(frozen=True)
class ArticleQuestion:
    """A question, its answers, its documents, and others of the same article."""

    question: str
    answers: tuple[str, ...]
    documents: tuple[int, ...]
    near: tuple[int, ...] = ()


@dataclass(frozen=True)
class Library:
    """All documents in alphabetical order, and the questions about them."""

    documents: tuple[str, ...]
    questions: tuple[ArticleQuestion, ...]

    def samples(self, room: PromptBudget, count: int, seed: int) -> list[RulerSample]:
        """A sample for each of the first questions."""
        if count > len(self.questions):
            raise RecipeError(
                f"{count} samples are asked for, and there are {len(self.questions)} questions",
                place="suite ruler",
                fix=f"write count: {len(self.questions)} or less, or give more questions",
            )
        rng = random.Random(seed)
        least = max(len(each.documents) for each in self.questions[:count])
        size = largest_size(lambda size: self._make(0, size, rng, seed), room, STEP, least=least)
        return [
            draw(lambda size, number=number: self._make(number, size, rng, seed), room, size, STEP, least=least)  # type: ignore[misc]
            for number in range(count)
        ]

    def _make(self, number: int, size: int, rng: random.Random, seed: int) -> RulerSample:
        asked = self.questions[number]
        shown = [self.documents[each] for each in self._chosen(asked, size, rng)]
        random.Random(seed).shuffle(shown)
        context = "\n\n".join(f"Document {place}:\n{document}" for place, document in enumerate(shown, 1))
        text = TEXT.format(context=context, question=asked.question)
        return RulerSample(text, START, asked.answers, cluster=f"document-{min(asked.documents)}")

    def _chosen(self, asked: ArticleQuestion, size: int, rng: random.Random) -> list[int]:
        own, near = list(asked.documents), list(asked.near)
        if size >= len(self.documents):
            repeats = -(-size // len(self.documents))
            return (list(range(len(self.documents))) * repeats)[:size]
        if size - len(own) > len(near):
            known = {*own, *near}
            others = [number for number in range(len(self.documents)) if number not in known]
            return own + near + rng.sample(others, size - len(own) - len(near))
        return own + rng.sample(near, size - len(own))


def read_library(rows: Iterable[tuple[str, dict[str, Any]]]) -> Library:
    """The documents and questions of rows."""
    read = [_read(row, place) for place, row in rows]
    documents = sorted({document for _, _, own, _ in read for document in own})
    number = {document: place for place, document in enumerate(documents)}
    articles: dict[str, list[str]] = {}
    for _, _, own, title in read:
        if title and own[0] not in articles.setdefault(title, []):
            articles[title].append(own[0])
    questions = tuple(
        ArticleQuestion(
            question,
            answers,
            tuple(number[document] for document in own),
            tuple(number[document] for document in articles.get(title, ()) if document not in own),
        )
        for question, answers, own, title in read
    )
    return Library(tuple(documents), questions)


def _read(row: dict[str, Any], place: str) -> tuple[str, tuple[str, ...], Sequence[str], str]:
    """Question, answers, documents and the title of the article (HotpotQA has none)."""
    context = row.get("context")
    if isinstance(context, str):
        written = WRITTEN.fullmatch(context) if "question" not in row else None
        question = written["question"] if written else row.get("question")
        answers = row.get("answers")
        answers = answers.get("text") if isinstance(answers, dict) else answers
        if isinstance(question, str) and isinstance(answers, list) and answers:
            return (
                question,
                tuple(map(str, answers)),
                [written["context"] if written else context],
                str(row.get("title", "")),
            )
    elif isinstance(row.get("question"), str) and isinstance(row.get("answer"), str) and context:
        pairs = zip(context["title"], context["sentences"], strict=True) if isinstance(context, dict) else context
        return row["question"], (row["answer"],), [f"{title}\n{''.join(parts)}" for title, parts in pairs], ""
    raise DataError(
        f"neither a question of SQuAD nor of HotpotQA; its columns are {', '.join(row)}",
        place=place,
        fix="give question, context and answers",
    )
