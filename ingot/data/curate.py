"""The `curate` stage: raw text to clean documents. Read `run` and `judge` from top to bottom.

    gather (find, select, read) -> every step in order -> documents/: part-*.parquet, funnel.json, removed.jsonl

Invariant: the same files and the same config give the same bytes of parquet, on any number of processors. The stage
is cheap (tens of seconds), so that an interrupted one starts again from the beginning; its artifact appears whole or
not at all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ingot.data.code_rules import code_rules
from ingot.data.config import (
    CodeRulesStep,
    CurateConfig,
    DecontaminateStep,
    ExactDedupStep,
    GopherQualityStep,
    GopherRepetitionStep,
    LanguageStep,
    NearDedupStep,
    QualityStep,
    SplitStep,
    Step,
)
from ingot.data.decontaminate import decontaminate
from ingot.data.dedup import exact_dedup, near_dedup
from ingot.data.document import KEEP, Document, Verdict
from ingot.data.funnel import Funnel
from ingot.data.gather import gather
from ingot.data.kinds import split_kind
from ingot.data.language import check_language
from ingot.data.quality import score_code, score_prose
from ingot.data.rules import gopher_quality, gopher_repetition
from ingot.data.workers import Workers
from ingot.data.write import write_documents
from ingot.workspace.errors import DataError
from ingot.workspace.files import atomic_folder, write_json, write_jsonl
from ingot.workspace.progress import Progress
from ingot.workspace.stage import Stage, StageFolder

Judge = Callable[[str, Any], Verdict]


def run(config: CurateConfig, inputs: Mapping[str, Path], folder: StageFolder) -> dict[str, Any]:
    """Curate; returns a summary of what came out."""
    funnel = Funnel(config.samples)
    progress = folder.progress
    progress.start(len(config.steps) + 1)
    with Workers(folder.stop) as workers:
        documents = gather(config, workers, funnel, progress)
        for number, step in enumerate(config.steps, start=1):
            progress.advance(number, documents=len(documents))
            folder.stop.check()
            began = time.monotonic()
            verdicts = judge(step, documents, workers, progress)
            documents = funnel.apply(step.step, time.monotonic() - began, documents, verdicts)
        progress.advance(len(config.steps) + 1, documents=len(documents))
    if not documents:
        raise DataError(
            "no document is left after the last step:\n" + funnel.table(),
            place="curate",
            fix="loosen the step that removes most, or give more raw text",
        )
    progress.say("\n" + funnel.table())
    if not any(isinstance(step, DecontaminateStep) for step in config.steps):
        progress.say("not decontaminated: {step: decontaminate, against: [EVAL FILES]} compares with evals")

    with atomic_folder(folder.artifact("documents")) as target:
        fingerprint = write_documents(documents, target)
        write_json(target / "funnel.json", funnel.rows)
        write_jsonl(target / "removed.jsonl", funnel.removed)
    return summary(documents, funnel, fingerprint)


def judge(step: Step, documents: list[Document], workers: Workers, progress: Progress) -> list[Verdict]:
    """What one step says about every document."""
    match step:
        case SplitStep():
            return each(documents, step, workers, {"": split_kind})
        case ExactDedupStep():
            return exact_dedup(documents)
        case LanguageStep():
            return each(documents, step, workers, {"prose": check_language})
        case GopherQualityStep():
            return each(documents, step, workers, {"prose": gopher_quality})
        case GopherRepetitionStep():
            return each(documents, step, workers, {"prose": gopher_repetition})
        case CodeRulesStep():
            return each(documents, step, workers, {"code": code_rules})
        case NearDedupStep():
            curve = ", ".join(f"{step.probability(s):.0%} at {s}" for s in (0.5, 0.7, 0.8, 0.9))
            progress.say(
                f"near_dedup: {step.bands} x {step.rows} looks at {curve} Jaccard; pairs from {step.min_jaccard}"
            )
            return near_dedup(documents, step, workers)
        case DecontaminateStep():
            return decontaminate(documents, step, workers, progress)
        case QualityStep():
            return each(documents, step, workers, {"prose": score_prose, "code": score_code})


def each(documents: list[Document], step: Step, workers: Workers, judges: dict[str, Judge]) -> list[Verdict]:
    """Judge every document by itself, with the judge for its kind; a kind without a judge is kept."""
    concerned = [index for index, document in enumerate(documents) if document.kind in judges]
    pairs = [(judges[documents[index].kind], documents[index].text) for index in concerned]
    verdicts = [KEEP] * len(documents)
    for index, verdict in zip(concerned, workers.map(judge_texts, pairs, weigh_pair, step), strict=True):
        verdicts[index] = verdict
    return verdicts


def judge_texts(pairs: list[tuple[Judge, str]], step: Step) -> list[Verdict]:
    """Apply a judge to each text (runs in a helper process)."""
    return [judge_text(text, step) for judge_text, text in pairs]


def weigh_pair(pair: tuple[Judge, str]) -> int:
    """The work in a text is its length."""
    return len(pair[1])


def summary(documents: list[Document], funnel: Funnel, fingerprint: str) -> dict[str, Any]:
    """Small numbers for tables: documents, bytes by source and kind, mean quality, seconds."""
    by_source: dict[str, int] = {}
    by_kind: dict[str, int] = {}
    for document in documents:
        by_source[document.source] = by_source.get(document.source, 0) + document.bytes
        by_kind[document.kind] = by_kind.get(document.kind, 0) + document.bytes
    return {
        "documents": len(documents),
        "bytes": sum(by_kind.values()),
        "bytes_by_kind": dict(sorted(by_kind.items())),
        "bytes_by_source": dict(sorted(by_source.items())),
        "raw_bytes": funnel.rows[0]["bytes_out"],
        "mean_quality": round(sum(float(d.annotations["quality"]) for d in documents) / len(documents), 4),
        "seconds": round(sum(row["seconds"] for row in funnel.rows), 1),
        "sha256": fingerprint,
    }


STAGE = Stage(kind="curate", config=CurateConfig, needs={}, makes=("documents",), run=run)
