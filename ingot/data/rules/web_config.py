"""Options of the rules made for web pages: C4, FineWeb, DCLM and OLMo 3, MADLAD, and lists of words and addresses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field, field_validator

from ingot.data.rules.word_option import WORDS, Words
from ingot.data.step import StepConfig
from ingot.workspace.files import fingerprint

if TYPE_CHECKING:
    from ingot.data.rules.bad_words import BadWords
    from ingot.data.rules.c4 import C4
    from ingot.data.rules.fineweb import FineWeb
    from ingot.data.rules.line_modifiers import LineModifiers
    from ingot.data.rules.madlad import Madlad
    from ingot.data.rules.url_filter import UrlFilter


class FineWebStep(StepConfig):
    """The rules that FineWeb adds (Penedo et al. 2024, section 3.6), counted as datatrove does."""

    decides: ClassVar[frozenset[str]] = frozenset(
        {"min_punctuated_lines", "max_short_lines", "max_duplicate_line_characters", "max_newlines_per_word"}
    )

    step: Literal["fineweb"] = Field(default="fineweb", description="name of the step")
    words: Words = Field(default="whitespace", description=WORDS)
    short_line: int = Field(default=30, ge=0, description="a line of at most so many characters is short")
    min_punctuated_lines: float = Field(
        default=0.12, ge=0, le=1, description="smallest share of lines that end in terminal punctuation"
    )
    max_short_lines: float = Field(default=0.67, ge=0, le=1, description="largest share of short lines")
    max_duplicate_line_characters: float = Field(
        default=0.01, ge=0, le=1, description="largest share of characters in lines seen before"
    )
    max_newlines_per_word: float = Field(default=0.3, ge=0, description="most newlines per word")

    def writes(self) -> tuple[str, ...]:
        """See StepConfig."""
        return (
            "_fineweb_lines",
            "_fineweb_punctuated_lines",
            "_fineweb_short_lines",
            "_fineweb_duplicate_line_characters",
            "_fineweb_newlines_per_word",
        )

    def build(self) -> FineWeb:
        """See StepConfig."""
        from ingot.data.rules.fineweb import FineWeb

        return FineWeb(self)


class C4Step(StepConfig):
    """The line and page rules of C4 (Raffel et al. 2020, section 2.2), as datatrove has them. Rewrites the text.

    FineWeb uses them with `terminal_punctuation: false`. The bad words of C4 are a step of their own (`bad_words`).
    """

    decides: ClassVar[frozenset[str]] = frozenset({"min_sentences"})

    step: Literal["c4"] = Field(default="c4", description="name of the step")
    terminal_punctuation: bool = Field(
        default=True, description="drop lines that do not end in `.`, `?`, `!`, `\"` or `'`, or that end in `...`"
    )
    min_words: int = Field(default=3, ge=0, description="a line with fewer white-space words is dropped")
    max_word_length: int = Field(default=1000, ge=1, description="a line with a longer word is dropped")
    citations: bool = Field(default=True, description="cut out `[1]`, `[]`, `[edit]` and `[citation needed]`")
    javascript: bool = Field(default=True, description="drop lines that mention javascript")
    policies: bool = Field(
        default=True, description="drop lines that mention terms of use, a privacy or cookie policy, or using cookies"
    )
    lorem_ipsum: bool = Field(default=True, description="remove documents with `lorem ipsum` in a line that would stay")
    curly_brackets: bool = Field(default=True, description="remove documents with `{` in a line that would stay")
    min_sentences: int = Field(default=5, ge=0, description="fewest sentences in the lines that stay")

    def writes(self) -> tuple[str, ...]:
        """See StepConfig."""
        return ("text", "_c4_banned", "_c4_sentences", "_c4_removed_lines", "_c4_removed_citations")

    def build(self) -> C4:
        """See StepConfig."""
        from ingot.data.rules.c4 import C4

        return C4(self)


class LineModifiersStep(StepConfig):
    """The line rules of DCLM and OLMo 3. Rewrites the text, and removes documents that lose too many words."""

    decides: ClassVar[frozenset[str]] = frozenset({"max_removed_words"})

    step: Literal["line_modifiers"] = Field(default="line_modifiers", description="name of the step")
    max_upper_case: float = Field(
        default=0.5, ge=0, le=1, description="a line with a larger share of upper-case letters is dropped"
    )
    max_numeric: float = Field(
        default=0.999999, ge=0, le=1, description="a line that begins with a larger share of digits is dropped"
    )
    counters: bool = Field(default=True, description="drop lines such as `1,204 likes` or `3.5K shares`")
    min_words: int = Field(default=2, ge=0, description="a line with fewer white-space words is dropped")
    phrases: dict[str, Literal["any", "prefix", "suffix"]] = Field(
        default={"items in cart": "any", "Read more...": "suffix", "Sign-in": "prefix"},
        description="phrases cut out of short lines: where they stand, at the beginning, at the end, or anywhere",
    )
    max_phrase_words: int = Field(default=10, ge=0, description="phrases are cut out of lines of at most so many words")
    max_removed_words: float = Field(
        default=0.05, ge=0, le=1, description="largest share of words that a document may lose"
    )

    @field_validator("phrases")
    @classmethod
    def _long_enough(cls, phrases: dict[str, str]) -> dict[str, str]:
        if len(phrases) > 64 or any(len(phrase.encode()) < 2 for phrase in phrases):
            raise ValueError("expected at most 64 phrases of two bytes or more")
        return phrases

    def writes(self) -> tuple[str, ...]:
        """See StepConfig."""
        return ("text", "_removed_lines", "_removed_word_share")

    def build(self) -> LineModifiers:
        """See StepConfig."""
        from ingot.data.rules.line_modifiers import LineModifiers

        return LineModifiers(self)


class MadladStep(StepConfig):
    """The sentence rules of MADLAD-400 (Kudugunta et al. 2023, section 2.3), as OLMo 3 uses them."""

    decides: ClassVar[frozenset[str]] = frozenset({"min_sentences", "min_questionable"})

    step: Literal["madlad"] = Field(default="madlad", description="name of the step")
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

    def writes(self) -> tuple[str, ...]:
        """See StepConfig."""
        return ("_madlad_sentences", "_madlad_questionable")

    def build(self) -> Madlad:
        """See StepConfig."""
        from ingot.data.rules.madlad import Madlad

        return Madlad(self)


class BadWordsStep(StepConfig):
    """Remove documents with a word of the user's list, as C4 does with the LDNOOBW lists."""

    decides: ClassVar[frozenset[str]] = frozenset({"keep_share"})

    step: Literal["bad_words"] = Field(default="bad_words", description="name of the step")
    file: str = Field(description="the list: one word or phrase a line, .gz allowed, `#` begins a comment")
    language: str = Field(
        default="en", description="language of the list; in ja, th and zh words need not stand between spaces or signs"
    )
    keep_share: float = Field(
        default=0.0, ge=0, le=1, description="share of the documents with such words that stays, by a hash of the text"
    )

    def writes(self) -> tuple[str, ...]:
        """See StepConfig."""
        return ("_bad_words", "_bad_words_draw")

    def outside(self) -> dict[str, str]:
        """See StepConfig."""
        return {self.file: fingerprint(Path(self.file))}

    def build(self) -> BadWords:
        """See StepConfig."""
        from ingot.data.rules.bad_words import BadWords

        return BadWords(self)


class UrlFilterStep(StepConfig):
    """Remove documents by their address, with lists of the user's in the kinds that RefinedWeb and FineWeb use."""

    decides: ClassVar[frozenset[str]] = frozenset({"min_soft_words"})

    step: Literal["url_filter"] = Field(default="url_filter", description="name of the step")
    url: str = Field(default="url", description="the column with the address")
    domains: list[str] = Field(default=[], description="files of hosts and domains, one a line")
    urls: list[str] = Field(default=[], description="files of whole addresses")
    banned_words: list[str] = Field(default=[], description="files of words of which one in the address is enough")
    soft_banned_words: list[str] = Field(default=[], description="files of words of which several are needed")
    banned_parts: list[str] = Field(default=[], description="files of strings that may not occur inside the address")
    min_soft_words: int = Field(default=2, ge=1, description="so many different soft words remove a document")

    def reads(self) -> tuple[str, ...]:
        """See StepConfig."""
        return (self.url, *self.where)

    def writes(self) -> tuple[str, ...]:
        """See StepConfig."""
        return ("_url_match", "_url_soft_words")

    def outside(self) -> dict[str, str]:
        """See StepConfig."""
        files = [*self.domains, *self.urls, *self.banned_words, *self.soft_banned_words, *self.banned_parts]
        return {file: fingerprint(Path(file)) for file in files}

    def build(self) -> UrlFilter:
        """See StepConfig."""
        from ingot.data.rules.url_filter import UrlFilter

        return UrlFilter(self)
