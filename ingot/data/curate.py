"""The `curate` stage: raw text to clean documents. Read `run` and `curate` from top to bottom.

    sources -> read tasks -> shards -> every run of steps: annotate, decide -> documents/ and removed/

Invariant: the same files and the same config give the same bytes, on any number of workers, on either engine, and
however often the work was killed and begun again. Results of finished tasks are in the work folder (`curation/` of the run),
named by what they were made from, so that a changed threshold computes no column again.
"""

from __future__ import annotations

import hashlib
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec

from ingot.data.annotate import annotate_across, annotate_each
from ingot.data.config import CurateConfig, labels
from ingot.data.decide import VERDICTS, decide
from ingot.data.engine.local_pool import LocalPool, available_processors
from ingot.data.engine.pool import SerialPool, WorkPool
from ingot.data.engine.ray_pool import RayPool
from ingot.data.engine.shard import Shard
from ingot.data.engine.store import FinishedTask
from ingot.data.engine.work import Work
from ingot.data.funnel import Funnel, FunnelRow
from ingot.data.identity import unique_ids
from ingot.data.ingest import PROBLEMS, ingest, plan_sources
from ingot.data.read.config import BASE_COLUMNS
from ingot.data.samples import collect_samples, rewritten_samples
from ingot.data.step import Step
from ingot.data.step_report import Reporting, reporting, reports_of, reports_phase
from ingot.data.warm import load, warm_up
from ingot.data.write import PART, Removal, documents_phase, part_bytes, publish, removed_phase
from ingot.workspace.errors import DataError
from ingot.workspace.files import atomic_folder, write_json, write_jsonl
from ingot.workspace.stage import StageFolder

WORK = "curation"


def run(config: CurateConfig, inputs: Mapping[str, Path], folder: StageFolder) -> dict[str, Any]:
    """Curate; returns a summary of what came out."""
    work_folder = Path(config.work_folder) if config.work_folder else folder.path.parent / WORK
    work_folder = work_folder.resolve()
    with make_pool(config) as pool:
        work = Work(
            work_folder,
            folder.progress,
            folder.stop,
            pool,
            stall_seconds=config.stall_seconds,
            check_contents=config.check_work == "content",
        )
        summary = curate(config, folder, work)
    if config.copy_to:
        copy(folder, config.copy_to)
    if not config.keep_work:  # last: a run that is stopped before goes on from it
        shutil.rmtree(work_folder)
    return summary


def make_pool(config: CurateConfig) -> WorkPool:
    """Where tasks run."""
    if config.engine == "ray":
        return RayPool(config.workers, config.ray_address)
    workers = config.workers or available_processors()
    return LocalPool(workers, load) if workers > 1 else SerialPool()


@dataclass(frozen=True)
class SharedPass:
    """Steps that share one pass: several that look at one document at a time, or one across documents."""

    steps: tuple[Step, ...]
    names: tuple[str, ...]


def runs_of(steps: Sequence[Step], names: Sequence[str]) -> Iterator[SharedPass]:
    """Consecutive steps that can share a pass. A rewritten text ends a run: what follows looks at the new one."""
    waiting: list[tuple[Step, str]] = []
    for step, name in zip(steps, names, strict=True):
        alone = step.across
        if waiting and (alone or "text" in waiting[-1][0].writes()):
            yield SharedPass(*zip(*waiting, strict=True))
            waiting = []
        waiting.append((step, name))
        if alone:
            yield SharedPass(*zip(*waiting, strict=True))
            waiting = []
    if waiting:
        yield SharedPass(*zip(*waiting, strict=True))


@dataclass(frozen=True)
class PassResult:
    """A run of steps that is done: the shards as it found them, and what it decided about each."""

    run: SharedPass
    before: list[Shard]
    decided: list[FinishedTask]


def curate(config: CurateConfig, folder: StageFolder, work: Work) -> dict[str, Any]:
    """The whole flow."""
    say = folder.progress.say
    sources = plan_sources(config)
    work.expect(sources.bytes)
    names = labels(config.steps)
    warm_up(config.steps, work)
    funnel = Funnel()
    shards, pages = ingest(config, sources, work, funnel)
    if pages and not any(step.step == "extract_html" for step in config.steps):
        say(
            f"{pages:,} HTML pages go on with their tags: `- step: extract_html`, first in `steps`, takes out their text"
        )
    if not shards:
        raise DataError("no document could be read:\n" + funnel.table(), place="curate", fix="look at the sources")
    shards, renamed = unique_ids(shards, config.on_duplicate_id, work)

    judged: list[PassResult] = []
    reportings: list[Reporting] = []
    rewritten: list[dict[str, Any]] = []
    for each in runs_of(config.steps, names):
        for line in (line for step in each.steps for line in step.say()):
            say(line)
        before = shards
        shards, decided, after, seconds = take_run(each, before, work)
        judged.append(PassResult(each, before, decided))
        add_rows(funnel, judged[-1], seconds)
        for row in funnel.rows[-len(each.steps) :]:
            for note, count in row.repaired.items():
                say(f"{row.step}: {count:,} {note}")
        for step, name, views in zip(each.steps, each.names, after, strict=True):
            reportings += reporting(step, name, views)
        if "text" in each.steps[-1].writes():  # only the last of a run can rewrite
            rewritten += rewritten_samples(each.names[-1], before, after[-1])
    if funnel.rows[-1].after[0] == 0:
        raise DataError(
            "no document is left after the last step:\n" + funnel.table(),
            place="curate",
            fix="loosen the step that removes most, or give more raw text",
        )
    if not any(step.step in ("decontaminate", "decon") for step in config.steps):
        say("not decontaminated: {step: decontaminate, against: [EVAL FILES]} compares with evals")

    gone, left = removals(judged), sizes_left(shards, judged)
    size = part_bytes(sum(left) + sum(removal.bytes for removal in gone))
    documents, removed, reported = work.run_all(
        [
            documents_phase(shards, left, output_columns(config), size),
            removed_phase(gone, shards, config.samples, size),
            reports_phase(reportings),
        ]
    )
    reports = reports_of(reportings, reported)
    samples = collect_samples(removed, {name: j.before for j in judged for name in j.run.names}, config.samples)
    with atomic_folder(folder.path / "removed") as target:
        publish(removed, target)
    with atomic_folder(folder.artifact("documents")) as target:
        publish(documents, target)
        write_json(target / "funnel.json", [row.as_json() for row in funnel.rows])
        write_jsonl(target / "removed.jsonl", samples)
        write_jsonl(target / "rewritten.jsonl", rewritten)
        write_jsonl(target / PROBLEMS, funnel.problems)
        for name, report in reports.items():
            write_json(target / f"{name}.json", report.content)
    say("\n" + funnel.table(shutil.get_terminal_size((200, 24)).columns))
    for line in (line for report in reports.values() for line in report.lines):
        say(line)
    say(f"documents: {folder.artifact('documents')}")
    say(f"removed documents, with reasons: {folder.path / 'removed'}")
    return summary(documents, removed, funnel) | ({"renamed_ids": renamed} if renamed else {})


def take_run(
    each: SharedPass, shards: list[Shard], work: Work
) -> tuple[list[Shard], list[FinishedTask], list[list[Shard]], list[float]]:
    """One run of steps: the shards as it leaves them, its decisions; by step the shards with its columns, and its
    processor seconds."""
    before = work.seconds
    first = each.steps[0]
    if first.across:
        after = [annotate_across(first, shards, work)]
        seconds = [work.seconds - before]
    else:
        after, seconds = annotate_each(each.steps, shards, work)
    left, decided = decide(each.steps, shards, after, work)
    return left, decided, after, seconds


def add_rows(funnel: Funnel, judged: PassResult, seconds: Sequence[float]) -> None:
    """The rows of a run's steps, summed over the shards."""
    for number, name in enumerate(judged.run.names):
        rows = [task.report["steps"][number] for task in judged.decided]
        documents, sizes = (
            tuple(sum(row[what][side] for row in rows) for side in (0, 1)) for what in ("documents", "bytes")
        )
        reasons = sum((Counter(row["reasons"]) for row in rows), Counter[str]())
        repaired = sum((Counter(row["repaired"]) for row in rows), Counter[str]())
        cut = sum(row["cut"] for row in rows)
        before, after = (documents[0], sizes[0]), (documents[1], sizes[1])
        funnel.add(FunnelRow(name, before, after, seconds[number], dict(reasons), dict(repaired), cut))


def sizes_left(shards: Sequence[Shard], judged: Sequence[PassResult]) -> list[int]:
    """Bytes of the documents that are left, by shard."""
    if not judged:
        return [shard.bytes for shard in shards]
    return [task.report["steps"][-1]["bytes"][1] for task in judged[-1].decided]


def output_columns(config: CurateConfig) -> list[str]:
    """The columns of the result: what the sources and the steps know, but for names with a leading underscore."""
    names = {*BASE_COLUMNS}.union(*(source.columns() for source in config.sources))
    names = names.union(*(step.writes() for step in config.steps))
    return [name for name in names if not name.startswith("_")]


def removals(judged: Sequence[PassResult]) -> list[Removal]:
    """What went, shard by shard, in the order of the documents and then of the steps."""
    found = []
    for one in judged:
        for shard, task in zip(one.before, one.decided, strict=True):
            first, last = task.report["steps"][0], task.report["steps"][-1]
            gone = first["documents"][0] - last["documents"][1]
            size = max(1, first["bytes"][0] - last["bytes"][1]) if gone else 0
            found.append((shard.number, Removal(shard, task.file(VERDICTS), one.run.names, size)))
    return [removal for _, removal in sorted(found, key=lambda pair: pair[0])]


def summary(documents: Sequence[FinishedTask], removed: Sequence[FinishedTask], funnel: Funnel) -> dict[str, Any]:
    """Small numbers for tables: documents, bytes by source and kind, mean quality, seconds."""
    count = sum(task.report["documents"] for task in documents)
    by_kind = sum((Counter(task.report["kind"]) for task in documents), Counter[str]())
    by_source = sum((Counter(task.report["source"]) for task in documents), Counter[str]())
    checksums = "".join(task.checksum(PART) for task in documents)
    return {
        "documents": count,
        "bytes": sum(by_kind.values()),
        "bytes_by_kind": dict(sorted(by_kind.items())),
        "bytes_by_source": dict(sorted(by_source.items())),
        "raw_bytes": funnel.rows[0].after[1],
        "removed": funnel.rows[1].after[0] - count,
        "mean_quality": round(sum(task.report["quality"] for task in documents) / count, 4),
        "seconds": round(sum(row.seconds for row in funnel.rows), 1),
        "sha256": hashlib.sha256(checksums.encode()).hexdigest(),
    }


def copy(folder: StageFolder, target: str) -> None:
    """Copy the results to a path or URL."""
    file_system, inside = fsspec.core.url_to_fs(target)
    for name in ("documents", "removed"):
        for path in sorted((folder.path / name).iterdir()):
            folder.stop.check()
            try:
                file_system.makedirs(f"{inside}/{name}", exist_ok=True)
                file_system.put_file(str(path), f"{inside}/{name}/{path.name}")
            except OSError as error:
                fix = "make it writable, or change copy_to, and run again: what was curated is still there"
                raise DataError(f"the results cannot be copied: {error}", place=target, fix=fix) from error
