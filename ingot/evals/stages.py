"""Declares the stages of this room: `eval`, `choose` and `verdict`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ingot.workspace.stage import Stage, imported


class EvalStage(Stage):
    """Measure a model with eval suites."""

    config = imported("ingot.evals.config:EvalConfig")
    run = imported("ingot.evals.evaluate:run")
    check = imported("ingot.evals.check:check_every")
    results = imported("ingot.evals.scores.printed:results")
    command = ("eval", "recipe")
    needs: ClassVar[Mapping[str, str]] = {"checkpoint": "checkpoint", "shards": "shards", "documents": "documents"}
    optional = ("checkpoint", "shards", "documents")
    makes = ("scores",)
    leaves = ("scores/scores.json", "scores/samples.jsonl")
    version = 2


class ChooseStage(Stage):
    """Take the checkpoint of the step that scored best."""

    config = imported("ingot.evals.config:ChooseConfig")
    run = imported("ingot.evals.choose:run")
    check = imported("ingot.evals.check:check_choice")
    needs: ClassVar[Mapping[str, str]] = {"scores": "scores", "checkpoint": "checkpoint"}
    makes = ("checkpoint",)
    leaves = ("choice.json",)
    resumes = False


class VerdictStage(Stage):
    """Check the claims of a recipe against the scores of its stages; fail if one does not hold."""

    config = imported("ingot.evals.config:VerdictConfig")
    run = imported("ingot.evals.verdict:run")
    check = imported("ingot.evals.check:check_claims")
    needs: ClassVar[Mapping[str, str]] = {"scores": "scores"}
    many = ("scores",)
    makes = ("verdict",)
    leaves = ("verdict/verdict.json",)
    resumes = False
