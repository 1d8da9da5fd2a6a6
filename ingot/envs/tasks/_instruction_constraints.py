"""The constraints of IFEval that requests are generated with: how kwargs are drawn, said and followed.

IFBench's constraints are not among them: they measure instructions that were never trained on.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ingot.envs.tasks._instruction_drafts import (
    Draft,
    begin_paragraph,
    bullets,
    capital_words,
    count_letters,
    count_sentences,
    count_words,
    divide,
    finishing,
    highlights,
    leave,
    placeholders,
    repeat_keyword,
    sections,
    two_responses,
    use_keywords,
)
from ingot.envs.verifiers.text.words import word_set

KEYWORDS = sorted(
    word_set(
        "harvest signal copper journey window pattern shelter village thunder canvas engine lantern meadow ribbon timber"
    )
)
FORBIDDEN = sorted(word_set("very really thing stuff basically literally nice awesome obviously actually"))
ENDINGS = ("That is all for now.", "Thank you for reading.", "Let me know if more is needed.", "The rest is up to you.")


@dataclass(frozen=True)
class InstructionKind:
    """One kind of instruction: what it claims of the draft, how its kwargs are drawn, said and followed.

    `late` constraints look at the whole text, so they are followed after the others.
    """

    id: str
    claims: frozenset[str]
    draw: Callable[[random.Random], dict[str, Any]]
    wordings: tuple[str, ...]
    follow: Callable[[Draft, dict[str, Any]], None]
    late: bool = False


def _range(name: str, low: int, high: int, **more: Any) -> Callable[[random.Random], dict[str, Any]]:
    return lambda rng: {name: rng.randint(low, high), **more}


def _relation(rng: random.Random, name: str, low: int, high: int, relation: str = "relation") -> dict[str, Any]:
    return {name: rng.randint(low, high), relation: rng.choice(("less than", "at least"))}


def _nth(rng: random.Random) -> dict[str, Any]:
    count = rng.randint(2, 5)
    return {"num_paragraphs": count, "nth_paragraph": rng.randint(1, count), "first_word": rng.choice(KEYWORDS)}


def _claim(*names: str) -> frozenset[str]:
    return frozenset(names)


WHOLE = _claim("layout", "start", "end", "case", "length", "marks")
CONSTRAINTS = (
    InstructionKind(
        "keywords:existence",
        _claim("keywords"),
        lambda rng: {"keywords": rng.sample(KEYWORDS, rng.randint(1, 3))},
        ("Use these words: {keywords}.", "Make sure that the following appear: {keywords}."),
        use_keywords,
    ),
    InstructionKind(
        "keywords:frequency",
        _claim("keywords"),
        lambda rng: {"keyword": rng.choice(KEYWORDS), **_relation(rng, "frequency", 2, 4)},
        ('The word "{keyword}" has to occur {relation} {frequency} times.',),
        repeat_keyword,
    ),
    InstructionKind(
        "keywords:forbidden_words",
        _claim("forbidden"),
        lambda rng: {"forbidden_words": rng.sample(FORBIDDEN, rng.randint(1, 3))},
        ("Do not use any of these words: {forbidden_words}.", "Leave out the following words: {forbidden_words}."),
        leave,
    ),
    InstructionKind(
        "keywords:letter_frequency",
        _claim("letters"),
        lambda rng: {
            "letter": rng.choice("abdeginorst"),
            "let_frequency": rng.randint(4, 20),
            "let_relation": "at least",
        },
        ("Let the letter {letter} occur {let_relation} {let_frequency} times.",),
        count_letters,
        late=True,
    ),
    InstructionKind(
        "length_constraints:number_words",
        _claim("length"),
        lambda rng: _relation(rng, "num_words", 40, 120),
        ("Write {relation} {num_words} words.", "The whole answer should have {relation} {num_words} words."),
        count_words,
        late=True,
    ),
    InstructionKind(
        "length_constraints:number_sentences",
        _claim("length"),
        lambda rng: _relation(rng, "num_sentences", 3, 9),
        (
            "Write {relation} {num_sentences} sentences.",
            "Your answer should have {relation} {num_sentences} sentences.",
        ),
        count_sentences,
        late=True,
    ),
    InstructionKind(
        "length_constraints:number_paragraphs",
        _claim("layout", "start", "end", "marks"),
        _range("num_paragraphs", 2, 5),
        ("Write {num_paragraphs} paragraphs and put the divider *** between them.",),
        divide,
    ),
    InstructionKind(
        "length_constraints:nth_paragraph_first_word",
        _claim("layout", "start", "end"),
        _nth,
        (
            "Write {num_paragraphs} paragraphs, divided by blank lines. Paragraph {nth_paragraph} has to begin "
            "with the word {first_word}.",
        ),
        begin_paragraph,
    ),
    InstructionKind(
        "detectable_content:number_placeholders",
        _claim("placeholders"),
        _range("num_placeholders", 1, 4),
        ("Use {num_placeholders} or more placeholders in square brackets, as in [address].",),
        placeholders,
    ),
    InstructionKind(
        "detectable_content:postscript",
        _claim("end"),
        lambda rng: {"postscript_marker": rng.choice(("P.S.", "P.P.S"))},
        (
            "Close with a postscript that begins with {postscript_marker}",
            "Add a postscript at the end, marked {postscript_marker}",
        ),
        lambda draft, kwargs: draft.tail.append(f"{kwargs['postscript_marker']} There is more to say another time."),
    ),
    InstructionKind(
        "detectable_format:number_bullet_lists",
        _claim("layout"),
        _range("num_bullets", 2, 6),
        ("Use exactly {num_bullets} bullet points in markdown, as in: * one point.",),
        bullets,
    ),
    InstructionKind(
        "detectable_format:number_highlighted_sections",
        _claim("marks"),
        _range("num_highlights", 1, 4),
        ("Highlight {num_highlights} or more parts with markdown, like *this*.",),
        highlights,
    ),
    InstructionKind(
        "detectable_format:multiple_sections",
        _claim("layout"),
        lambda rng: {"section_spliter": rng.choice(("Section", "PART", "Day")), "num_sections": rng.randint(2, 5)},
        ("Divide the answer into {num_sections} sections. Head each one with {section_spliter} and its number.",),
        sections,
    ),
    InstructionKind(
        "detectable_format:title",
        _claim("start"),
        lambda rng: {},
        ("Give it a title in double angular brackets, such as <<my title>>.",),
        lambda draft, kwargs: draft.head.append(f"<<About {draft.topic}>>"),
    ),
    InstructionKind(
        "detectable_format:json_format",
        WHOLE,
        lambda rng: {},
        ("The entire answer has to be valid JSON.",),
        finishing(lambda text: json.dumps({"answer": text})),
    ),
    InstructionKind(
        "combination:two_responses",
        WHOLE,
        lambda rng: {},
        ("Give two different answers, with six asterisks (******) between them and nowhere else.",),
        two_responses,
    ),
    InstructionKind(
        "startend:end_checker",
        _claim("end"),
        lambda rng: {"end_phrase": rng.choice(ENDINGS)},
        ('End with exactly these words: "{end_phrase}" Nothing may follow them.',),
        lambda draft, kwargs: draft.tail.append(kwargs["end_phrase"]),
    ),
    InstructionKind(
        "startend:quotation",
        _claim("start"),
        lambda rng: {},
        ("Put the whole answer in double quotation marks.",),
        finishing(lambda text: f'"{text}"'),
    ),
    InstructionKind(
        "change_case:capital_word_frequency",
        _claim("case"),
        lambda rng: _relation(rng, "capital_frequency", 2, 6, "capital_relation"),
        ("Words in capital letters should occur {capital_relation} {capital_frequency} times.",),
        capital_words,
    ),
    InstructionKind(
        "change_case:english_capital",
        _claim("case"),
        lambda rng: {},
        ("Answer in English and in capital letters only.",),
        finishing(str.upper),
    ),
    InstructionKind(
        "change_case:english_lowercase",
        _claim("case"),
        lambda rng: {},
        ("Answer in English and without any capital letter.",),
        finishing(str.lower),
    ),
    InstructionKind(
        "punctuation:no_comma",
        _claim("commas"),
        lambda rng: {},
        ("Do not use commas.", "Write without any comma."),
        leave,
    ),
)
