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

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from ingot.data.step import PerText, Rule, at_least, numbers

if TYPE_CHECKING:
    import pyarrow

    from ingot.data.text.texts import Texts


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
        import numpy as np

        from ingot.data.rules.gopher_quality import per
        from ingot.data.rules.madlad import count
        from ingot.data.text.characters import character_flags
        from ingot.data.text.phrases import Phrases
        from ingot.data.text.words import words_of

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
