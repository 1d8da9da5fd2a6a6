"""The step `madlad` removes documents with few or many questionable sentences (MADLAD-400, Kudugunta et al. 2023, section 2.3).

Sentences are those of text/sentences.py. Questionable is one that breaks a chosen rule; the numbers are the paper's:

    2  list case            12 words or more, over half of them begin with a capital letter
    3  abnormal length      fewer than 20 or more than 500 characters
    4  technical characters over 20 % of the characters are 0-9 { } + / ( ) >
    5  cursed strings       one of the listed phrases, or nine words in a row of 1, 3 or 4 characters each

OLMo 3 uses 2 and 5. Rule 1 (the language of a sentence differs from the document's) is not here. Of the paper's list of
cursed strings those that ask for the end of a sentence are left out: the full stop they end in separates sentences.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow
from pydantic import Field, field_validator, model_validator

from ingot.data.native import Bytes, Marks, Offsets, loop
from ingot.data.step import PerText, Rule, at_least, numbers, per
from ingot.data.text.characters import UPPER, WORD, character_flags, code_point, width
from ingot.data.text.phrases import Phrases, find_phrases
from ingot.data.text.sentences import sentence_end
from ingot.data.text.spans import Spans
from ingot.data.text.texts import Texts
from ingot.data.text.white_space import blank
from ingot.data.text.words import words_of

GROUPS = 9  # words in a row
LIST_CASE_WORDS, LIST_CASE_SHARE = 12, 0.5
SHORTEST, LONGEST = 20, 500
TECHNICAL_SHARE = 0.2


@loop
def _odd_words(data: Bytes, words: Spans, word: int, stop: int, table: Bytes, chosen: Marks) -> bool:
    """List case (rule 2), or too many words of one small size in a row (rule 5)? Of the words from `word` to `stop`."""
    starts, ends, characters = words.starts, words.ends, words.characters
    counted = capitals = row = 0
    while word < len(starts) and starts[word] < stop:
        if row and characters[word] == characters[word - 1] and starts[word] == ends[word - 1] + 1:
            row += 1
        else:
            row = 1
        size = characters[word]
        if chosen[5] and row == GROUPS and (size == 1 or size == 3 or size == 4):
            return True
        at, end = starts[word], min(ends[word], stop)
        while at < end:
            flags = table[code_point(data, at)]
            if flags & WORD:  # signs before it do not count
                counted += 1
                capitals += (flags & UPPER) != 0
                break
            at += width(data[at])
        word += 1
    return chosen[2] and counted >= LIST_CASE_WORDS and capitals > LIST_CASE_SHARE * counted


@loop
def _abnormal_or_technical(data: Bytes, start: int, stop: int, length_counts: bool, technical_counts: bool) -> bool:
    """Rules 3 and 4."""
    characters = technical = 0
    for at in range(start, stop):
        byte = data[at]
        characters += byte & 0xC0 != 0x80
        technical += (
            0x30 <= byte <= 0x39 or byte == 0x7B or byte == 0x7D or byte == 0x2B or 0x28 <= byte <= 0x29
            or byte == 0x2F or byte == 0x3E
        )  # fmt: skip
    return (length_counts and (characters < SHORTEST or characters > LONGEST)) or (
        technical_counts and technical > TECHNICAL_SHARE * characters
    )


@loop
def count(
    data: Bytes,
    offsets: Offsets,
    words: Spans,
    table: Bytes,
    chosen: Marks,
    phrases: Phrases,
    sentences: Offsets,
    questionable: Offsets,
) -> None:
    """The sentences of each text, and the questionable ones; chosen[n] says whether rule n is used."""
    for text in range(len(offsets) - 1):
        start = offsets[text]
        word = words.offsets[text]
        while start < offsets[text + 1]:
            end, after = sentence_end(data, start, offsets[text + 1], table)
            while word < words.offsets[text + 1] and words.ends[word] <= start:
                word += 1
            if not blank(data, start, end, table):
                sentences[text] += 1
                questionable[text] += (
                    _odd_words(data, words, word, end, table, chosen)
                    or (chosen[5] and find_phrases(data, start, end, phrases) != 0)
                    or ((chosen[3] or chosen[4]) and _abnormal_or_technical(data, start, end, chosen[3], chosen[4]))
                )
            start = after


class MadladStep(PerText):
    """The sentence rules of MADLAD-400 (Kudugunta et al. 2023, section 2.3), as OLMo 3 uses them."""

    rate = 76
    decides: ClassVar[frozenset[str]] = frozenset({"min_sentences", "min_questionable"})

    rules: list[Literal[2, 3, 4, 5]] = Field(
        default=[2, 5],
        description="what makes a sentence questionable: 2 list case, 3 abnormal length, 4 technical characters, "
        "5 cursed strings",
    )
    cursed: list[str] = Field(
        default=[
            " №", "���", "aute irure dolor ", " sunt in culpa qui ", "orem ipsum ", " quis nostrud ", " adipisicing ",
            " dolore eu ", " cupidatat ", "autem vel eum", "wisi enim ad", " sex ", " porn ", "黄色电影", "mp3",
            "ownload", "Vol.", " Ep.", "Episode", " шт.", "Develop", "Facebook", " crusher ", " xxx ",
        ],
        description="the strings of rule 5, matched exactly",
    )  # fmt: skip
    min_sentences: int = Field(default=5, ge=0, description="fewest sentences")
    min_questionable: float = Field(
        default=0.2, ge=0, le=1, description="a document with this share of questionable sentences, or more, is removed"
    )

    @field_validator("cursed")
    @classmethod
    def _long_enough(cls, phrases: list[str]) -> list[str]:
        if len(phrases) > 64 or any(len(phrase.encode()) < 2 for phrase in phrases):
            raise ValueError("expected at most 64 strings of two bytes or more")
        return phrases

    @model_validator(mode="after")
    def _has_rule_5(self) -> MadladStep:
        if 5 not in self.rules:
            self.refuse("cursed", because="these are the strings of rule 5, which is not among `rules`")
        return self

    def writes(self) -> tuple[str, ...]:
        return ("_madlad_sentences", "_madlad_questionable")

    def measure(self, texts: Texts) -> dict[str, Any]:

        words = words_of(texts)
        phrases = Phrases.of(self.cursed, ignore_case=False)
        chosen = np.array([number in self.rules for number in range(6)])
        sentences, questionable = np.zeros(len(texts), np.int64), np.zeros(len(texts), np.int64)
        count(texts.data, texts.offsets, words, character_flags(), chosen, phrases, sentences, questionable)
        return {"_madlad_sentences": sentences, "_madlad_questionable": per(questionable, sentences)}

    def decide(self, columns: pyarrow.Table) -> list[Rule]:
        share, limit = numbers(columns, "_madlad_questionable"), self.min_questionable
        return [
            at_least("sentences", numbers(columns, "_madlad_sentences"), self.min_sentences),
            Rule("questionable sentences", share >= limit, share, f">= {limit:g}"),
        ]
