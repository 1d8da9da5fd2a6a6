"""Eval files as a recipe names them, and what the parts of an eval weigh."""

from __future__ import annotations

from pydantic import Field

from ingot.workspace.config import Config

QUESTION_WEIGHT, ANSWER_WEIGHT, PASSAGE_WEIGHT = 0.7, 0.2, 0.1  # decon's, of an eval that has all three
STORED_QUESTION_SHARE = 0.3  # matches with less of the question are not stored


class EvalFiles(Config):
    """Eval files whose fields are named; a plain path in `against` guesses them."""

    files: str = Field(description="path or glob: jsonl(.gz, .zst), parquet, txt, md")
    name: str = Field(default="", description="name of the eval set in reports (empty: folder/file)")
    question: str = Field(description="field with the question or prompt")
    answer: str = Field(default="", description="field with the answer (empty: none)")
    passage: str = Field(default="", description="field with the text that the question is about (empty: none)")
