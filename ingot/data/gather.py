"""The first part of the funnel: find the files of every source, select within the budget, read them into documents."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from ingot.data.config import CurateConfig, FilesSource
from ingot.data.document import Document
from ingot.data.funnel import Funnel, size_of
from ingot.data.read import Problem, Reading, read_files, read_rows
from ingot.data.sources import RawFile, find_files, select
from ingot.data.workers import Workers
from ingot.workspace.progress import Progress

ORDINARY = ("empty", "no description", "budget")  # counted, but nothing to look at
NAMED_PROBLEMS = 5  # unreadable files that are named on the screen; all are counted, samples lie in removed.jsonl


def gather(config: CurateConfig, workers: Workers, funnel: Funnel, progress: Progress) -> list[Document]:
    """The documents of all sources in the order of their ids; the funnel gets the rows `select` and `read`."""
    found: list[RawFile] = []
    taken: list[RawFile] = []
    readings: list[Reading] = []
    too_large: list[Problem] = []
    select_seconds = read_seconds = 0.0
    budget = config.max_bytes
    for number, source in enumerate(config.sources):
        began = time.monotonic()
        share = budget // (len(config.sources) - number)
        files = find_files(source)
        large = {file for file in files if file.role != "rows" and file.size > source.max_file_bytes}
        too_large += [
            Problem(file.id, file.source, "larger than", f"{source.max_file_bytes:,} bytes", file.size)
            for file in sorted(large, key=lambda file: file.id)
        ]
        selected = select([file for file in files if file not in large], share)
        found += files
        taken += selected
        select_seconds += time.monotonic() - began

        began = time.monotonic()
        column = source.text if isinstance(source, FilesSource) else ""
        source_readings, used = read_selected(selected, column, share, workers)
        readings += source_readings
        budget = max(0, budget - used)
        read_seconds += time.monotonic() - began

    over_budget = len(found) - len(too_large) - len(taken)
    before, between = files_size(found), files_size(taken)
    reasons = Counter({"budget": over_budget}) + Counter(problem.rule for problem in too_large)
    funnel.add("select", select_seconds, before, between, reasons, [sample("select", problem) for problem in too_large])

    documents = sorted((d for reading in readings for d in reading.documents), key=lambda document: document.id)
    problems = [problem for reading in readings for problem in reading.problems]
    reasons = Counter(problem.rule for problem in problems)
    after = size_of(documents)
    broken = [problem for problem in problems if problem.rule not in ORDINARY]
    funnel.add("read", read_seconds, between, after, reasons, [sample("read", problem) for problem in broken])
    for problem in broken[:NAMED_PROBLEMS]:
        progress.say(f"not read: {problem.id}: {problem.rule} {problem.detail}".rstrip())
    if len(broken) > NAMED_PROBLEMS:
        progress.say(f"not read: {len(broken) - NAMED_PROBLEMS:,} more, see funnel.json and removed.jsonl")
    return documents


def read_selected(files: list[RawFile], column: str, budget: int, workers: Workers) -> tuple[list[Reading], int]:
    """Read plain files side by side, then files of rows one after the other; also the bytes of the budget used."""
    plain = [file for file in files if file.role != "rows"]
    readings = workers.map(read_files, plain, lambda file: file.size)
    used = sum(file.size for file in plain)
    for file in files:
        if file.role == "rows":
            workers.stop.check()
            reading = read_rows(file, column, budget - used)
            used += sum(document.bytes for document in reading.documents)
            readings.append(reading)
    return readings, used


def files_size(files: list[RawFile]) -> tuple[int, int]:
    """Number of files and their bytes."""
    return len(files), sum(file.size for file in files)


def sample(step: str, problem: Problem) -> dict[str, Any]:
    """A row of removed.jsonl about a file or row that was not read."""
    return {
        "id": problem.id,
        "source": problem.source,
        "step": step,
        "reason": f"{step}: {problem.rule} {problem.detail}".rstrip(),
        "text": problem.text,
        "bytes": problem.bytes,
    }
