"""Drafts of answers, and what is done to a draft so that an instruction is followed.

draft = head lines, body sentences laid out as paragraphs or bullets, tail lines, and changes to the finished text
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ingot.envs.verifiers.text.words import number_of_words, sentences

SENTENCES = (
    "Many people take an interest in {topic}.",
    "It is easy to begin with {topic} and hard to stop.",
    "There is always more to learn about {topic}.",
    "Some of us grew up with {topic} close to home.",
    "A good friend once told me a story about {topic}.",
    "The best advice is to look closely and to take your time.",
    "Children often ask the most useful questions here.",
    "Every season shows another side of it.",
    "You can find books on {topic} in most towns.",
    "With patience the small details begin to make sense.",
)
NUMBERS = ("one", "two", "three", "four", "five", "six")


@dataclass
class Draft:
    """An answer in the making."""

    topic: str
    head: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)
    tail: list[str] = field(default_factory=list)
    layout: Callable[[list[str]], str] = " ".join
    finish: list[Callable[[str], str]] = field(default_factory=list)

    def add_sentence(self) -> None:
        """The next general sentence about the topic."""
        self.body.append(SENTENCES[len(self.body) % len(SENTENCES)].format(topic=self.topic))

    def text(self) -> str:
        """The whole answer."""
        text = "\n\n".join([*self.head, self.layout(self.body), *self.tail])
        for change in self.finish:
            text = change(text)
        return text


def chunks(body: list[str], count: int) -> list[str]:
    """The sentences dealt out to so many parts."""
    return [" ".join(body[number::count]) for number in range(count)]


def at_least(draft: Draft, count: int) -> None:
    """Add sentences until there are so many."""
    while len(draft.body) < count:
        draft.add_sentence()


def use_keywords(draft: Draft, kwargs: dict[str, Any]) -> None:
    draft.body.append(f"Think of {' and '.join(kwargs['keywords'])}.")


def repeat_keyword(draft: Draft, kwargs: dict[str, Any]) -> None:
    if kwargs["relation"] == "at least":
        draft.body.append(f"Think of {' and '.join([kwargs['keyword']] * kwargs['frequency'])}.")


def lengthen(draft: Draft, reached: Callable[[str], bool]) -> None:
    """Add sentences until the whole text is long enough, or it is hopeless."""
    while not reached(draft.text()) and len(draft.body) < 80:
        draft.add_sentence()


def count_words(draft: Draft, kwargs: dict[str, Any]) -> None:
    if kwargs["relation"] == "at least":
        lengthen(draft, lambda text: number_of_words(text) >= kwargs["num_words"])


def count_sentences(draft: Draft, kwargs: dict[str, Any]) -> None:
    if kwargs["relation"] == "at least":
        lengthen(draft, lambda text: len(sentences(text)) >= kwargs["num_sentences"])


def count_letters(draft: Draft, kwargs: dict[str, Any]) -> None:
    lengthen(draft, lambda text: text.lower().count(kwargs["letter"]) >= kwargs["let_frequency"])


def divide(draft: Draft, kwargs: dict[str, Any]) -> None:
    at_least(draft, kwargs["num_paragraphs"])
    draft.layout = lambda body: "\n\n***\n\n".join(chunks(body, kwargs["num_paragraphs"]))


def begin_paragraph(draft: Draft, kwargs: dict[str, Any]) -> None:
    at_least(draft, kwargs["num_paragraphs"])

    def layout(body: list[str]) -> str:
        parts = chunks(body, kwargs["num_paragraphs"])
        at = kwargs["nth_paragraph"] - 1
        parts[at] = f"{kwargs['first_word'].capitalize()} comes first here. {parts[at]}"
        return "\n\n".join(parts)

    draft.layout = layout


def bullets(draft: Draft, kwargs: dict[str, Any]) -> None:
    at_least(draft, kwargs["num_bullets"])
    draft.layout = lambda body: "\n".join(f"* {part}" for part in chunks(body, kwargs["num_bullets"]))


def sections(draft: Draft, kwargs: dict[str, Any]) -> None:
    at_least(draft, kwargs["num_sections"])
    draft.layout = lambda body: "\n\n".join(
        f"{kwargs['section_spliter']} {number}\n{part}"
        for number, part in enumerate(chunks(body, kwargs["num_sections"]), 1)
    )


def placeholders(draft: Draft, kwargs: dict[str, Any]) -> None:
    names = [f"[contact {NUMBERS[number]}]" for number in range(kwargs["num_placeholders"])]
    draft.body.append(f"For more please ask {' or '.join(names)}.")


def highlights(draft: Draft, kwargs: dict[str, Any]) -> None:
    parts = [f"*point {NUMBERS[number]}*" for number in range(kwargs["num_highlights"])]
    draft.body.append(f"Keep in mind {' and '.join(parts)}.")


def capital_words(draft: Draft, kwargs: dict[str, Any]) -> None:
    if kwargs["capital_relation"] == "at least":
        draft.body.append(f"Some call it {' and '.join(['GREAT'] * kwargs['capital_frequency'])}.")


def two_responses(draft: Draft, kwargs: dict[str, Any]) -> None:
    draft.finish.append(lambda text: f"{text}\n******\n{text} There is another way to say it.")


def finishing(change: Callable[[str], str]) -> Callable[[Draft, dict[str, Any]], None]:
    """A change to the finished text."""
    return lambda draft, kwargs: draft.finish.append(change)


def leave(draft: Draft, kwargs: dict[str, Any]) -> None:
    """The draft follows it as it is."""
