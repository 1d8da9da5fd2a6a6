"""Options of the rules on the form of a text: its length, newlines, repetitions, how far it shrinks; and masking."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from ingot.data.rules.word_option import WORDS, Words
from ingot.data.step import StepConfig

if TYPE_CHECKING:
    from ingot.data.rules.compression_ratio import CompressionRatio
    from ingot.data.rules.length import Length
    from ingot.data.rules.newlines import Newlines
    from ingot.data.rules.pii import Pii
    from ingot.data.rules.repeated_ngrams import RepeatedNgrams


class LengthStep(StepConfig):
    """Too short or too long. The default is that of OLMo 3 for web pages."""

    decides: ClassVar[frozenset[str]] = frozenset({"min_characters", "max_characters", "min_words", "max_words"})

    step: Literal["length"] = Field(default="length", description="name of the step")
    words: Words = Field(default="whitespace", description=WORDS)
    min_characters: int = Field(default=150, ge=0, description="fewest characters")
    max_characters: int | None = Field(default=None, ge=1, description="most characters")
    min_words: int = Field(default=0, ge=0, description="fewest words")
    max_words: int | None = Field(default=None, ge=1, description="most words")

    def writes(self) -> tuple[str, ...]:
        """See StepConfig."""
        return ("_length_characters", "_length_words")

    def build(self) -> Length:
        """See StepConfig."""
        from ingot.data.rules.length import Length

        return Length(self)


class NewlinesStep(StepConfig):
    """Cut runs of newlines (DCLM, OLMo 3). Rewrites the text."""

    step: Literal["newlines"] = Field(default="newlines", description="name of the step")
    max_consecutive: int = Field(default=2, ge=1, le=1000, description="newlines that may follow each other")

    def writes(self) -> tuple[str, ...]:
        """See StepConfig."""
        return ("text", "_removed_newlines")

    def build(self) -> Newlines:
        """See StepConfig."""
        from ingot.data.rules.newlines import Newlines

        return Newlines(self)


class RepeatedNgramsStep(StepConfig):
    """The same few words many times in a row (OLMo 3: 32 times, 1 to 13 tokens)."""

    decides: ClassVar[frozenset[str]] = frozenset({"min_repetitions"})

    step: Literal["repeated_ngrams"] = Field(default="repeated_ngrams", description="name of the step")
    words: Words = Field(default="whitespace", description=WORDS)
    longest_ngram: int = Field(default=13, ge=1, le=100, description="sequences of up to so many words are looked for")
    min_repetitions: int = Field(
        default=32, ge=2, description="a document is removed if a sequence stands so many times in a row, or more"
    )

    def writes(self) -> tuple[str, ...]:
        """See StepConfig."""
        return ("_repetitions",)

    def build(self) -> RepeatedNgrams:
        """See StepConfig."""
        from ingot.data.rules.repeated_ngrams import RepeatedNgrams

        return RepeatedNgrams(self)


class CompressionRatioStep(StepConfig):
    """Bounds on the size after gzip / size before, for long documents."""

    decides: ClassVar[frozenset[str]] = frozenset({"min_ratio", "max_ratio"})

    step: Literal["compression_ratio"] = Field(default="compression_ratio", description="name of the step")
    min_bytes: int = Field(default=32_768, ge=1, description="shorter documents are not measured and stay")
    level: int = Field(default=1, ge=1, le=9, description="effort of gzip; its own default is 6")
    min_ratio: float = Field(default=0.1, ge=0, description="smallest ratio; below it a document repeats itself")
    max_ratio: float = Field(default=0.6, gt=0, description="largest ratio; above it a document is close to noise")

    def writes(self) -> tuple[str, ...]:
        """See StepConfig."""
        return ("compression_ratio",)

    def build(self) -> CompressionRatio:
        """See StepConfig."""
        from ingot.data.rules.compression_ratio import CompressionRatio

        return CompressionRatio(self)


class PiiStep(StepConfig):
    """Mask e-mail addresses and public IP addresses as FineWeb does, and phone numbers if asked. Rewrites the text."""

    step: Literal["pii"] = Field(default="pii", description="name of the step")
    emails: bool = Field(default=True, description="mask e-mail addresses")
    ips: bool = Field(default=True, description="mask IPv4 addresses")
    public_ips_only: bool = Field(default=True, description="leave private, local and reserved addresses alone")
    phones: bool = Field(default=False, description="mask North American phone numbers")
    email_replacements: list[str] = Field(
        default=["email@example.com", "firstname.lastname@example.org"],
        min_length=1,
        description="put in place of e-mail addresses, in turn",
    )
    ip_replacements: list[str] = Field(
        default=[
            "22.214.171.124",
            "126.96.36.199",
            "188.8.131.52",
            "184.108.40.206",
            "220.127.116.11",
            "18.104.22.168",
        ],
        min_length=1,
        description="put in place of IP addresses, in turn (nobody answered there when FineWeb chose them)",
    )
    phone_replacements: list[str] = Field(
        default=["555-0100"], min_length=1, description="put in place of phone numbers, in turn"
    )

    def writes(self) -> tuple[str, ...]:
        """See StepConfig."""
        return ("text", "_pii_emails", "_pii_ips", "_pii_phones", "_pii_spans")

    def build(self) -> Pii:
        """See StepConfig."""
        from ingot.data.rules.pii import Pii

        return Pii(self)
