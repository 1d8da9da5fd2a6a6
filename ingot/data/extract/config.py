"""Steps that rewrite texts: main content out of HTML, repair of broken encodings, one Unicode normal form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from ingot.data.step import StepConfig

if TYPE_CHECKING:
    from ingot.data.extract.fix import FixText
    from ingot.data.extract.html import ExtractHtml
    from ingot.data.extract.normalise import Normalise

HTML_TYPES = ["text/html", "application/xhtml+xml"]


class ExtractHtmlStep(StepConfig):
    """Take the main content out of HTML pages: without navigation, advertisements, comments and lists of links."""

    step: Literal["extract_html"] = Field(default="extract_html", description="name of the step")
    where: dict[str, str | list[str]] = Field(
        default={"mime": HTML_TYPES}, description="the documents that are pages; the others pass untouched"
    )
    method: Literal["best", "fast", "precise"] = Field(
        default="best",
        description="`best`: paragraphs vote for the element that holds the article (content.py); `fast`: the main "
        "content of resiliparse; `precise`: trafilatura with `favor_precision`, as in FineWeb",
    )
    max_bytes: int = Field(default=4_000_000, gt=0, description="a longer page is cut here before it is parsed")
    max_depth: int = Field(
        default=512,
        gt=0,
        description="a page nested more deeply (browsers stop at 512) is not parsed: its tags are taken out and its text "
        "is kept; parsers need time in the square of the depth",
    )
    seconds: float = Field(
        default=30.0, gt=0, description="`precise` only: a page that takes longer is read by the method `best`"
    )

    def writes(self) -> tuple[str, ...]:
        return ("text", "title")

    def build(self) -> ExtractHtml:
        from ingot.data.extract.html import ExtractHtml

        return ExtractHtml(self)


class FixTextStep(StepConfig):
    """Repair texts that were decoded with the wrong charset (`cafÃ©`), and take out characters that nobody sees."""

    step: Literal["fix_text"] = Field(default="fix_text", description="name of the step")

    def writes(self) -> tuple[str, ...]:
        return ("text",)

    def build(self) -> FixText:
        from ingot.data.extract.fix import FixText

        return FixText(self)


class NormaliseStep(StepConfig):
    """Bring texts into one Unicode normal form."""

    step: Literal["normalise"] = Field(default="normalise", description="name of the step")
    form: Literal["NFC", "NFKC"] = Field(
        default="NFC",
        description="`NFC`: one code for a letter and its accents, the meaning unchanged; `NFKC`: also plain letters for "
        "ligatures, full-width forms and superscripts",
    )

    def writes(self) -> tuple[str, ...]:
        return ("text",)

    def build(self) -> Normalise:
        from ingot.data.extract.normalise import Normalise

        return Normalise(self)
