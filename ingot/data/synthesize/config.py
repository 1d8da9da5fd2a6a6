"""Options for making documents from documents: which from which, and what writes them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Annotated, Literal

from pydantic import Field, model_validator

from ingot.workspace.config import Config

Style = Literal["plain", "encyclopedia", "textbook", "dialogue"]


class EndpointConfig(Config):
    """A server with OpenAI's chat completions API."""

    url: str = Field(description="address up to and including the version, as in http://127.0.0.1:8000/v1")
    model: str = Field(description="name of the model there")
    api_key_variable: str | None = Field(
        default=None, description="environment variable that holds the key; the key itself never stands in a recipe"
    )
    concurrency: int = Field(default=16, ge=1, le=1024, description="requests on their way at the same time")
    timeout_seconds: float = Field(default=120, gt=0, description="a request that takes longer has failed")
    attempts: int = Field(
        default=5, ge=1, description="tries of a request that meets a full queue (429), a server error or no answer"
    )


class PassageTask(Config):
    """What tasks that rewrite passages have in common."""

    shortest: int = Field(default=60, ge=1, description="fewest words of a passage")
    longest: int = Field(default=400, ge=1, description="most words of a passage; paragraphs are joined up to here")
    share: float = Field(default=1.0, gt=0, le=1, description="share of the passages, chosen by the hash of their ids")
    max_samples: int | None = Field(default=None, ge=1, description="stop after this many accepted samples (null: all)")
    where: dict[str, str | list[str]] = Field(
        default={}, description="only documents whose column has this value, as in {topic: [science, history]}"
    )

    @model_validator(mode="after")
    def _in_order(self) -> PassageTask:
        if self.shortest > self.longest:
            raise ValueError(f"no passage has at least {self.shortest} and at most {self.longest} words")
        return self


class RephraseTask(PassageTask):
    """Say a passage again in another style (WRAP, arXiv 2401.16380); at most twice, as Kimi K2 does (arXiv 2507.20534)."""

    task: Literal["rephrase"] = Field(default="rephrase", description="name of the task")
    styles: list[Style] = Field(
        default=["encyclopedia", "dialogue"], min_length=1, description="a passage gets them in turn"
    )
    per_passage: int = Field(default=1, ge=1, le=2, description="rephrasings of a passage, each in another style")
    min_length_ratio: float = Field(default=0.4, ge=0, description="shortest answer, in words of the passage")
    max_length_ratio: float = Field(default=2.5, gt=0, description="longest answer, in words of the passage")
    min_numbers_kept: float = Field(
        default=0.8, ge=0, le=1, description="share of the passage's numbers that the answer must still have"
    )
    max_copied: float = Field(
        default=0.5, ge=0, le=1, description="largest share of the answer's 8-grams of words that stand in the passage"
    )

    @model_validator(mode="after")
    def _enough_styles(self) -> RephraseTask:
        if self.per_passage > len(set(self.styles)):
            raise ValueError(f"{self.per_passage} rephrasings of a passage need as many different styles")
        return self


class NotesTask(PassageTask):
    """Turn mathematical text into worked study notes (as Kimi K2 and SwallowMath, arXiv 2505.02881)."""

    task: Literal["notes"] = Field(default="notes", description="name of the task")
    min_numbers_kept: float = Field(default=0.6, ge=0, le=1, description="share of the passage's numbers to keep")
    min_length_ratio: float = Field(default=0.4, ge=0, description="shortest answer, in words of the passage")
    max_length_ratio: float = Field(default=4.0, gt=0, description="longest answer, in words of the passage")


class TranslateTask(PassageTask):
    """Translate a passage."""

    task: Literal["translate"] = Field(default="translate", description="name of the task")
    language: str = Field(description="the language's English name, as in German")
    code: str | None = Field(
        default=None,
        description="its ISO 639-1 code: answers that language identification calls something else are refused "
        '(needs `pip install -e ".[data]"`; null: not checked)',
    )
    min_numbers_kept: float = Field(default=0.8, ge=0, le=1, description="share of the passage's numbers to keep")
    min_length_ratio: float = Field(default=0.3, ge=0, description="shortest answer, in characters of the passage")
    max_length_ratio: float = Field(default=3.0, gt=0, description="longest answer, in characters of the passage")


class CountTask(Config):
    """Questions about how often words stand in a long document; the answers are counted, no model is asked.

    Common-word extraction of OLMo 3's long-context data (arXiv 2512.13961): words are picked by tf-idf, the question
    needs every part of the text.
    """

    task: Literal["count"] = Field(default="count", description="name of the task")
    shortest: int = Field(default=2000, ge=1, description="fewest words of the document")
    longest: int = Field(default=30_000, ge=1, description="most words; a longer document is cut into such sections")
    words: int = Field(default=8, ge=2, le=50, description="words asked about")
    min_count: int = Field(default=3, ge=1, description="fewest occurrences of a word asked about")
    max_count: int = Field(default=40, ge=1, description="most occurrences of one")
    max_samples: int | None = Field(default=None, ge=1, description="stop after this many samples (null: all)")


class VignettesTask(Config):
    """Short scenes that together hold every mention of a phrase in a long document, written by the model (OLMo 3: REX).

    The program collects up to `snippets` sentences around a frequent phrase; the model rewrites them as scenes. An answer
    must name the phrase and take up content words of at least `min_snippets_used` of the sentences.
    """

    task: Literal["vignettes"] = Field(default="vignettes", description="name of the task")
    shortest: int = Field(default=2000, ge=1, description="fewest words of the document")
    longest: int = Field(default=30_000, ge=1, description="most words; a longer document is cut into such sections")
    snippets: int = Field(default=8, ge=2, le=32, description="sentences given to the model")
    min_snippets_used: int = Field(default=5, ge=1, description="sentences whose content the answer must take up")
    max_samples: int | None = Field(default=None, ge=1, description="stop after this many samples (null: all)")


class ProblemsTask(PassageTask):
    """A problem inspired by a passage, with a program whose printed result is the answer; accepted if running it agrees."""

    task: Literal["problems"] = Field(default="problems", description="name of the task")
    seconds: float = Field(default=5.0, gt=0, description="most processor seconds of the program")
    memory: int = Field(default=512_000_000, gt=0, description="most bytes of memory of the program")
    unsafe: bool = Field(default=False, description="run programs also where nothing isolates them from your files")


SynthesisTask = Annotated[
    RephraseTask | NotesTask | TranslateTask | CountTask | VignettesTask | ProblemsTask, Field(discriminator="task")
]


class DocumentsConfig(Config):
    """Documents from documents: rephrased, translated, asked about, each with its lineage."""

    tasks: list[SynthesisTask] = Field(min_length=1, description="what is made, in order")
    endpoint: EndpointConfig | None = Field(
        default=None, description="what writes; null: the checkpoint that the stage is given as input"
    )
    temperature: float = Field(default=0.8, ge=0, description="of sampling")
    top_p: float = Field(default=0.95, gt=0, le=1, description="of sampling")
    max_tokens: int = Field(default=1024, ge=1, description="most tokens of an answer")
    keep_documents: bool = Field(default=True, description="the result holds the given documents too, before the new")

    def supplies(self) -> frozenset[str]:
        """A server writes instead of a checkpoint."""
        return frozenset() if self.endpoint is None else frozenset({"checkpoint"})

    def unfit(self, inputs: Collection[str]) -> Iterator[str]:
        """One of them writes."""
        if self.endpoint is not None and "checkpoint" in inputs:
            yield "endpoint: the server is asked, not the checkpoint in inputs: leave one of them out"

    @property
    def needs_writer(self) -> bool:
        """Whether any task asks a model."""
        return any(not isinstance(task, CountTask) for task in self.tasks)
