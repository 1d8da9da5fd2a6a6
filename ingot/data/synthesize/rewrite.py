"""Tasks that rewrite a passage: rephrased, as study notes, in another language. The prompts, and the checks of answers.

A check is cheap and certain: length, numbers that must survive, words copied, the language. It cannot see every mistake;
what it refuses is counted with its reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ingot.data.synthesize.config import NotesTask, RephraseTask, TranslateTask
from ingot.data.synthesize.sample import Passage, Refused, Request

STYLES = {
    "plain": "in plain words that a twelve-year-old understands, in short sentences",
    "encyclopedia": "in the neutral, precise style of an encyclopedia article",
    "textbook": "as a section of a textbook that explains each idea before it uses it",
    "dialogue": "as a conversation of questions and answers between a curious student and an expert",
}
RULES = "Keep every fact, name and number. Add nothing that the text does not say. Write only the new text, no remarks about it."
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
PREAMBLE = re.compile(r"^(?:sure|certainly|of course|here(?:'s| is| are))\b[^\n]{0,120}:\s*\n+", re.IGNORECASE)
REFUSAL = re.compile(r"^(?:i(?:'m| am) sorry|sorry, (?:but )?i|i can(?:no|')t|as an ai)\b", re.IGNORECASE)
COPIED_WORDS = 8


def rephrase(task: RephraseTask, passage: Passage, number: int) -> list[Request]:
    """`per_passage` requests in different styles; the passage's number picks the first style."""
    requests = []
    for variant in range(task.per_passage):
        style = task.styles[(number + variant) % len(task.styles)]
        prompt = f"Rewrite the following text {STYLES[style]}. {RULES}\n\nText:\n{passage.text}"
        requests.append(Request("rephrase", passage, prompt, variant, {"style": style}))
    return requests


def notes(task: NotesTask, passage: Passage, number: int) -> list[Request]:
    """One request."""
    prompt = (
        "Turn the following text into study notes for mathematics: state what is given and what is sought, name the ideas "
        f"that are used, and go through every step of the reasoning with its calculation. {RULES}\n\nText:\n{passage.text}"
    )
    return [Request("notes", passage, prompt)]


def translate(task: TranslateTask, passage: Passage, number: int) -> list[Request]:
    """One request."""
    prompt = f"Translate the following text into {task.language}. {RULES}\n\nText:\n{passage.text}"
    return [Request("translate", passage, prompt, facts={"language": task.language})]


def check_rephrased(task: RephraseTask, request: Request, answer: str) -> str:
    """The text of an accepted answer."""
    text = cleaned(answer)
    check_length(len(text.split()), len(request.passage.text.split()), task.min_length_ratio, task.max_length_ratio)
    check_numbers(request.passage.text, text, task.min_numbers_kept)
    if copied(request.passage.text, text) > task.max_copied:
        raise Refused("copied")
    return text


def check_notes(task: NotesTask, request: Request, answer: str) -> str:
    """The text of an accepted answer."""
    text = cleaned(answer)
    check_length(len(text.split()), len(request.passage.text.split()), task.min_length_ratio, task.max_length_ratio)
    check_numbers(request.passage.text, text, task.min_numbers_kept)
    return text


def check_translated(
    task: TranslateTask, request: Request, answer: str, language_of: Callable[[str], str] | None
) -> str:
    """The text of an accepted answer; `language_of` names a text's language if that is to be checked."""
    text = cleaned(answer)
    check_length(len(text), len(request.passage.text), task.min_length_ratio, task.max_length_ratio)
    check_numbers(request.passage.text, text, task.min_numbers_kept)
    if language_of is not None and language_of(text) != task.code:
        raise Refused("another language")
    return text


def cleaned(answer: str) -> str:
    """The answer without an introduction of itself; no answer and a refusal are refused."""
    text = PREAMBLE.sub("", answer.strip()).strip()
    if not text:
        raise Refused("empty")
    if REFUSAL.match(text):
        raise Refused("declined")
    return text


def check_length(found: int, given: int, lowest: float, highest: float) -> None:
    """Refuse answers that are too short or too long for what was given."""
    if found < lowest * given:
        raise Refused("too short")
    if found > highest * given:
        raise Refused("too long")


def check_numbers(given: str, text: str, share: float) -> None:
    """Refuse answers that lost numbers; 1,000 and 1000 and 1.000 are the same (translations change the marks)."""
    wanted = {re.sub(r"[.,]", "", number) for number in NUMBER.findall(given)}
    found = {re.sub(r"[.,]", "", number) for number in NUMBER.findall(text)}
    if wanted and len(wanted & found) < share * len(wanted):
        raise Refused("numbers lost")


def copied(given: str, text: str) -> float:
    """Share of the text's 8-grams of lower-case words that stand in the given text."""
    source, words = given.lower().split(), text.lower().split()
    known = {tuple(source[at : at + COPIED_WORDS]) for at in range(len(source) - COPIED_WORDS + 1)}
    grams = [tuple(words[at : at + COPIED_WORDS]) for at in range(len(words) - COPIED_WORDS + 1)]
    return sum(gram in known for gram in grams) / len(grams) if grams else 0.0
