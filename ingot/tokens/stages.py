"""Declares the stages of this room: `tokenizer` and `tokenize`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ingot.workspace.stage import Stage, imported


class TokenizerStage(Stage):
    """Train a byte-level BPE tokenizer on documents."""

    config = imported("ingot.tokens.config:TokenizerConfig")
    run = imported("ingot.tokens.train_tokenizer:run")
    command = ("tokenizer", "train")
    needs: ClassVar[Mapping[str, str]] = {"documents": "documents"}
    makes = ("tokenizer",)
    leaves = ("tokenizer/statistics.json",)
    resumes = False


class TokenizeStage(Stage):
    """Turn documents into token shards."""

    config = imported("ingot.tokens.config:TokenizeConfig")
    run = imported("ingot.tokens.tokenize:run")
    needs: ClassVar[Mapping[str, str]] = {"documents": "documents", "tokenizer": "tokenizer"}
    makes = ("shards",)
    leaves = ("shards/index.json",)
    version = 2
