"""The step `decontaminate` removes documents that hold an eval: by shared n-grams (overlap.py), or as Ai2's decon (decon.py).

Published settings of others, to copy:

    decon (Ai2), its defaults             mode: decon, tokens: a cl100k rank file
    Olmo 3 web run                        … threshold: 0.88, perfect_until: 25, short_answer: 1, answer_window: 20,
                                          answer_ngram: 2, long_answer_window: 20, passages: false
    GPT-3 (Brown et al. 2020)             mode: overlap, ngram_words: 13
    datatrove                             mode: overlap, ngram_words: 12
    Marin                                 mode: overlap, ngram_words: 13, min_share: 0.5
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, model_validator

from ingot.data.step import Report, Rule, Step
from ingot.workspace.config import Config

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

    import pyarrow

    from ingot.data.engine.work import Work
    from ingot.data.steps.decontaminate.decon_index import DeconIndex
    from ingot.data.steps.decontaminate.overlap import OverlapIndex

QUESTION_WEIGHT, ANSWER_WEIGHT, PASSAGE_WEIGHT = 0.7, 0.2, 0.1  # decon's, of an eval that has all three
STORED_QUESTION_SHARE = 0.3  # matches with less of the question are not stored


OVERLAP = ("ngram_words", "min_share", "min_words", "min_plain_words", "max_common")
ANSWERS = ("answer_ngram", "short_answer", "answer_window", "long_answer_window")
PASSAGES = ("passage_ngram", "passage_window", "passage_misses")
DECON = (
    *(
        "tokens",
        "question_ngram",
        "sample_every",
        "max_misses",
        "min_eval_tokens",
        "min_eval_words",
        "answers",
        "passages",
    ),
    *(*ANSWERS, *PASSAGES, "threshold", "perfect_until", "threshold_from"),
)


class EvalFiles(Config):
    """Eval files whose fields are named; a plain path in `against` guesses them."""

    files: str = Field(description="path or glob: jsonl(.gz, .zst), parquet, csv, txt, md")
    name: str = Field(default="", description="name of the eval set in reports (empty: folder/file)")
    question: str = Field(description="field with the question or prompt")
    answer: str = Field(default="", description="field with the answer (empty: none)")
    passage: str = Field(default="", description="field with the text that the question is about (empty: none)")


class DecontaminateStep(Step):
    """Remove documents that hold an eval.

    `overlap` compares n-grams of lower-case words: a document goes if it shares one (or a share) of them with an eval.
    `decon` is Ai2's algorithm (Olmo 3): finds the question approximately, weighs its n-grams by how rare they are among
    the evals, looks for the answer behind it and the passage before it, and asks more of short evals.
    """

    rate = 74
    decides: ClassVar[frozenset[str]] = frozenset({"min_share", "threshold", "perfect_until", "threshold_from"})

    mode: Literal["overlap", "decon"] = Field(default="overlap", description="how evals are found")
    against: list[str | EvalFiles] = Field(
        default=[],
        description="eval files: paths or globs of jsonl(.gz, .zst), parquet, csv, txt, md. `overlap` searches every string "
        "of a row; `decon` guesses question, answer and passage from the names of the fields",
    )
    texts: list[str] = Field(
        default=[],
        description="eval prompts written here; `{name}` is a hole that cuts a template into its fixed parts",
    )
    weights: Literal["published", "corpus"] = Field(
        default="published",
        description="what an n-gram of an eval counts. published: as the authors of the mode do (overlap: all alike; decon: "
        "the more, the rarer it is among the evals). corpus: the rarer it is among evals and documents together, so "
        "that licences, quotes and templates count little; goes through all documents once more",
    )

    ngram_words: int = Field(
        default=8,
        ge=1,
        le=50,
        description="overlap: words in an n-gram. 13 in GPT-3 (Brown et al. 2020), 12 in datatrove; 8 is stricter",
    )
    min_share: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="overlap: share of an eval's n-grams that a document must hold; 0: a single one is enough. Marin: 0.5",
    )
    min_words: int = Field(default=5, ge=1, description="overlap: fewest words of an eval text that is searched")
    min_plain_words: int = Field(
        default=3,
        ge=0,
        description="overlap: fewest words of two or more letters in an n-gram: rows of numbers are everywhere",
    )
    max_common: int | None = Field(
        default=None,
        ge=1,
        description="overlap: an n-gram found in more documents than this is boilerplate, not a leak (null: no such rule)",
    )

    tokens: str = Field(
        default="words",
        description="decon: what n-grams are made of: `words`, or a file with a vocabulary: tiktoken ranks (.tiktoken, "
        "cl100k as in decon) or tokenizer.json",
    )
    question_ngram: int = Field(default=5, ge=1, description="decon: tokens in an n-gram of a question")
    answer_ngram: int = Field(default=3, ge=1, description="decon: tokens in an n-gram of an answer (Olmo 3 web: 2)")
    passage_ngram: int = Field(default=4, ge=1, description="decon: tokens in an n-gram of a passage")
    sample_every: int = Field(default=10, ge=1, description="decon: look up every n-th n-gram of a document")
    max_misses: int = Field(default=11, ge=1, description="decon: misses in a row that end the match of an eval")
    min_eval_tokens: int = Field(default=20, ge=0, description="decon: shorter evals are not searched for")
    min_eval_words: int = Field(
        default=4, ge=0, description="decon: evals with fewer different words are not searched for"
    )
    answers: bool = Field(default=True, description="decon: look for answers behind the question")
    passages: bool = Field(default=True, description="decon: look for passages before the question (Olmo 3 web: false)")
    short_answer: int = Field(
        default=3, ge=0, description="decon: answers of at most this many tokens must occur exactly (Olmo 3 web: 1)"
    )
    answer_window: int = Field(
        default=50,
        ge=1,
        description="decon: tokens behind the question where a short answer may begin (Olmo 3 web: 20)",
    )
    long_answer_window: int = Field(
        default=100,
        ge=1,
        description="decon: smallest window of a long answer; it is at least twice the answer (web: 20)",
    )
    passage_window: int = Field(
        default=100, ge=1, description="decon: smallest window of a passage; it is at least twice the passage"
    )
    passage_misses: int = Field(default=2, ge=0, description="decon: misses in a row that a passage survives")
    threshold: float = Field(
        default=0.8, gt=0, le=1, description="decon: a document with a score of at least this goes (Olmo 3 web: 0.88)"
    )
    perfect_until: int = Field(
        default=20, ge=0, description="decon: evals of at most this many tokens need a score of 1 (Olmo 3 web: 25)"
    )
    threshold_from: int = Field(
        default=50,
        ge=0,
        description="decon: evals of at least this many tokens need `threshold`; linear between the two",
    )

    @model_validator(mode="after")
    def _possible(self) -> DecontaminateStep:
        if not self.against and not self.texts:
            raise ValueError("nothing to compare with: give eval files in `against` or prompts in `texts`")
        if self.threshold_from < self.perfect_until:
            raise ValueError(f"threshold_from {self.threshold_from} is below perfect_until {self.perfect_until}")
        self._check_mode()
        if self.min_question_share() < STORED_QUESTION_SHARE:
            least = QUESTION_WEIGHT * STORED_QUESTION_SHARE + ANSWER_WEIGHT + PASSAGE_WEIGHT
            raise ValueError(f"threshold {self.threshold} is below {least:.2f}: such weak matches are not stored")
        return self

    def _check_mode(self) -> None:
        """Refuse options of the other mode, and of what is not looked for."""
        if self.mode == "overlap":
            self.refuse(*DECON, because="mode: overlap does not read it; leave it out, or set mode: decon")
            return
        self.refuse(*OVERLAP, because="mode: decon does not read it; leave it out, or set mode: overlap")
        for sought, field, options in ((self.answers, "answer", ANSWERS), (self.passages, "passage", PASSAGES)):
            if sought:
                continue
            self.refuse(*options, because=f"{field}s: false looks for none; leave it out")
            for number, each in enumerate(self.against):
                if isinstance(each, EvalFiles) and each.chosen(field):
                    raise ValueError(f"against.{number}.{field}: {field}s: false looks for none; leave it out")

    def min_question_share(self) -> float:
        """The least of a question that can reach the threshold when answer and passage are there in full."""
        return (self.threshold - ANSWER_WEIGHT - PASSAGE_WEIGHT) / QUESTION_WEIGHT

    def writes(self) -> tuple[str, ...]:
        return (
            "contamination",
            "contamination_set",
            "contamination_eval",
            "contamination_text",
            "contamination_hits",
            "contamination_spans",
            "contamination_matches",
        )

    def outside(self) -> dict[str, str]:
        from ingot.data.steps.decontaminate.evals import file_fingerprints

        return file_fingerprints(self)

    @property
    def across(self) -> bool:
        """Weights by rarity in the documents, and a limit on it, need a first pass that counts (counting.py)."""
        return self.weights == "corpus" or (self.mode == "overlap" and self.max_common is not None)

    @property
    def _mode(self) -> ModuleType:
        from ingot.data.steps.decontaminate import decon, overlap

        return overlap if self.mode == "overlap" else decon

    @cached_property
    def index(self) -> OverlapIndex | DeconIndex:
        """The evals; built once in each process."""
        from ingot.data.steps.decontaminate import decon_index, overlap

        return overlap.build_index(self) if self.mode == "overlap" else decon_index.build_index(self)

    def annotate(self, documents: Any, work: Work | None = None) -> Any:
        """See `PerDocument`; with `work`, of shards instead of documents, see `AcrossDocuments`."""
        if work is None:
            from ingot.data.text.texts import Texts

            return self._mode.annotate(self.index, self, Texts.of(documents.column("text")))
        from ingot.data.steps.decontaminate.counting import count_and_match

        return count_and_match(documents, work, self, self._mode.count_shard, self._mode.match_shard, self.version)

    def decide(self, columns: pyarrow.Table) -> list[Rule]:
        found: list[Rule] = self._mode.decide(self, columns)
        return found

    def say(self) -> list[str]:
        return self.index.say()

    def report(self, tables: Iterable[pyarrow.Table]) -> Report:
        from ingot.data.steps.decontaminate.report import eval_report, lines

        found = eval_report(self, tables)
        return Report(found, lines(found))
