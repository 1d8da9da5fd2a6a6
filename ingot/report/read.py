"""Reads a run folder into records, even if files are missing or torn.

A report is most needed when something went wrong: a stage failed, a process was killed in the middle of a line, a run is
unfinished. So every file is optional, every unreadable line or row is skipped, and `RunRecord.problems` names each omission.
Only a path that is not a run is an error.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from ingot.recipe.stages import STAGES
from ingot.report.records import (
    Banding,
    ChoiceRow,
    Claim,
    Decontamination,
    FunnelStep,
    GenerationRow,
    ReadProblem,
    RemovedDocument,
    RewrittenDocument,
    Rollout,
    RunRecord,
    ScoreRow,
    StageRecord,
)
from ingot.report.sample_documents import kept_samples
from ingot.workspace.errors import ArtifactError, RecipeError
from ingot.workspace.files import PARTIAL, folder_bytes
from ingot.workspace.outside import is_outside
from ingot.workspace.stage import DONE, Stage

Model = TypeVar("Model", bound=BaseModel)

FINISHED = ("done", "reused")


class Reader:
    """Reads files of a run folder and lists what it could not read."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.problems: list[str] = []

    def note(self, path: Path, problem: str) -> None:
        """Add a problem with a file, named relative to the run."""
        place = path.relative_to(self.root) if path.is_relative_to(self.root) else path
        self.problems.append(f"{place}: {problem}")

    def text(self, path: Path) -> str | None:
        """The text of a file; None if it is not there. Bytes that are not UTF-8 are replaced, not fatal."""
        try:
            return path.read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self.note(path, f"cannot be read ({error.strerror})")
            return None

    def value(self, path: Path) -> Any:
        """The value of a JSON file, or None."""
        text = self.text(path)
        if text is None:
            return None
        try:
            return json.loads(text)
        except (json.JSONDecodeError, RecursionError) as error:
            self.note(path, f"is not valid JSON ({error})")
            return None

    def mapping(self, path: Path) -> dict[str, Any]:
        """The object of a JSON file; empty if it is missing or something else."""
        value = self.value(path)
        if value is not None and not isinstance(value, dict):
            self.note(path, f"holds a {type(value).__name__} where an object was expected")
        return value if isinstance(value, dict) else {}

    def rows(self, path: Path) -> list[dict[str, Any]]:
        """The objects of a JSONL file; lines that are torn or no objects are skipped and counted."""
        rows, bad = [], []
        for number, line in enumerate((self.text(path) or "").split("\n"), start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (json.JSONDecodeError, RecursionError):
                row = None
            if isinstance(row, dict):
                rows.append(row)
            else:
                bad.append(number)
        if bad:
            self.note(path, f"skipped {_count(len(bad), 'unreadable line')} (line {bad[0]})")
        return rows

    def records(self, path: Path, model: type[Model], rows: list[Any]) -> list[Model]:
        """The rows as records; a row without the fields of its format is skipped and counted."""
        records, bad, first = [], 0, ""
        for number, row in enumerate(rows, start=1):
            try:
                records.append(model.model_validate(row))
            except ValidationError as error:
                bad, first = bad + 1, first or f"row {number}: {_explain(error)}"
        if bad:
            self.note(path, f"skipped {_count(bad, 'row')} of another format ({first})")
        return records


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _explain(error: ValidationError) -> str:
    detail = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(str(part) for part in detail['loc']) or 'value'}: {detail['msg']}"


def _finite(value: Any) -> float | None:
    usable = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if usable else None


def _moment(value: Any) -> float | None:
    """Seconds since 1970 of an ISO time."""
    try:
        return datetime.fromisoformat(value).timestamp() if isinstance(value, str) else None
    except ValueError:
        return None


def read_run(folder: Path) -> RunRecord:
    """Read the run in `folder`. Raises `ArtifactError` only when there is no run to read."""
    folder = folder.resolve()
    reader = Reader(folder)
    description = reader.mapping(folder / "run.json")
    listed = description.get("stages")
    entries: list[dict[str, Any]]
    if isinstance(listed, list):
        entries = [entry for entry in listed if isinstance(entry, dict)]
    elif isinstance(listed, dict):
        entries = [{"name": name, **entry} for name, entry in listed.items() if isinstance(entry, dict)]
    else:
        entries = list(_entries_from_folders(folder))
        if entries:
            reader.note(folder / "run.json", "is missing or unreadable; stages are listed from their folders")
    if not entries and not description:
        raise ArtifactError(
            "this is not a run: it has neither run.json nor stage folders",
            place=str(folder),
            fix="give the folder that `ingot run` printed, such as runs/quickstart",
        )
    stages = [read_stage(reader, folder, entry) for entry in entries]
    names = [stage.folder for stage in stages if stage.folder]
    for stage in stages:
        stage.config = _within_run(stage.config, names)
    seed = description.get("seed")
    dates = [stage.finished for stage in stages if stage.finished is not None]
    recipe, version = description.get("recipe"), description.get("ingot")
    return RunRecord(
        name=str(description.get("name") or folder.name),
        seed=seed if isinstance(seed, int) else None,
        date=_moment(description.get("started")) or max(dates, default=None),
        recipe=Path(recipe).name if isinstance(recipe, str) else None,
        version=version if isinstance(version, str) else None,
        stages=stages,
        problems=reader.problems,
    )


def _entries_from_folders(folder: Path) -> Iterator[dict[str, Any]]:
    """Stages of a run without run.json: its STAGE-HASH folders by age, the newest of each name."""
    newest: dict[str, Path] = {}
    candidates = [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
    for path in sorted(candidates, key=lambda path: path.stat().st_mtime):
        looks_like_stage = any((path / name).exists() for name in ("recipe.yaml", "metrics.jsonl", DONE))
        if looks_like_stage and "-" in path.name and not path.name.endswith(PARTIAL):
            name = path.name.rpartition("-")[0]
            newest.pop(name, None)
            newest[name] = path
    for name, path in newest.items():
        first = name.partition("-")[0]  # a stage that `after` made is called after its kind and what it looks at
        kind = first if first in STAGES else name
        yield {
            "name": name,
            "kind": kind,
            "folder": path.name,
            "status": "done" if (path / DONE).exists() else "unknown",
        }


def read_stage(reader: Reader, root: Path, entry: dict[str, Any]) -> StageRecord:
    """Read what one stage left in its folder."""
    name = str(entry.get("name") or "?")
    stage = StageRecord(name=name, kind=str(entry.get("kind") or name), status=str(entry.get("status") or "unknown"))
    stage.inputs = {str(role): _names(value) for role, value in _mapping(entry.get("inputs")).items()}
    stage.seconds = _finite(entry.get("seconds"))
    stage.summary = _mapping(entry.get("summary"))
    stage.error = str(entry["error"]) if entry.get("error") else None
    folder = _stage_folder(root, entry.get("folder"))
    if folder is None or not folder.is_dir():
        if stage.status in FINISHED:
            reader.problems.append(
                f"stage {name}: its folder {entry.get('folder') or '(not named in run.json)'} is gone"
            )
        return stage
    stage.folder, stage.bytes = folder.name, _size(folder)

    done = reader.mapping(folder / DONE)
    if (folder / DONE).exists():
        stage.finished = (folder / DONE).stat().st_mtime
    stage.seconds = stage.seconds or _finite(done.get("seconds"))
    stage.summary = stage.summary or _mapping(done.get("summary"))
    stage.config = reader.text(folder / "recipe.yaml")
    stage.metrics = reader.rows(folder / "metrics.jsonl")

    read_documents(reader, folder / "documents", stage)
    stage.tokenizer = reader.mapping(folder / "tokenizer/statistics.json") or None
    read_scores(reader, folder, stage)
    path = folder / "scores/samples.jsonl"
    stage.generations = reader.records(path, GenerationRow, reader.rows(path))
    path = folder / "trajectories.jsonl"
    stage.rollouts = reader.records(path, Rollout, reader.rows(path))
    path = folder / "verdict/verdict.json"
    stage.claims = reader.records(path, Claim, _claims(reader.value(path)))

    kind = _find_kind(reader, stage)
    if kind is not None and stage.status in FINISHED:
        stage.missing = [file for file in kind.leaves if not (folder / file).exists()]
    stage.panel = {} if kind is None else _panel(reader, stage, kind, folder)
    return stage


def _find_kind(reader: Reader, stage: StageRecord) -> Stage | None:
    """The kind of a stage; of one from outside, whose file may be gone, nothing but what all stages show is known then."""
    try:
        return STAGES.find(stage.kind)
    except RecipeError as error:
        if is_outside(stage.kind):
            reader.problems.append(f"stage {stage.name}: {error.problem}")
        return None


def _panel(reader: Reader, stage: StageRecord, kind: Stage, folder: Path) -> dict[str, Any]:
    try:
        shown = json.loads(json.dumps(dict(kind.panel(folder)), allow_nan=False))
    except Exception as error:  # noqa: BLE001  code of the user's, which may raise anything
        reader.problems.append(f"stage {stage.name}: its panel cannot be shown ({type(error).__name__}: {error})")
        return {}
    return _mapping(shown)


def read_scores(reader: Reader, folder: Path, stage: StageRecord) -> None:
    """What an eval stage measured: the checkpoint, and those before it; and what a choose stage took of them."""
    stage.scores = _scores(reader, folder / "scores/scores.json")
    for metric, units in reader.mapping(folder / "scores/tasks.json").items():
        stage.units[metric] = {name: value for name, value in _mapping(units).items() if _finite(value) is not None}
    for metric, clusters in reader.mapping(folder / "scores/clusters.json").items():
        stage.clusters[metric] = {str(unit): str(cluster) for unit, cluster in _mapping(clusters).items()}
    for path in sorted(folder.glob("history/step-*/scores.json")):
        step = path.parent.name.removeprefix("step-")
        if step.isdigit():
            stage.history[int(step)] = _scores(reader, path)
    choice = reader.mapping(folder / "choice.json")
    for record in reader.records(folder / "choice.json", ChoiceRow, [choice] if choice else []):
        stage.choice = record


def _scores(reader: Reader, path: Path) -> dict[str, ScoreRow]:
    found = {metric: reader.records(path, ScoreRow, [score]) for metric, score in reader.mapping(path).items()}
    return {metric: records[0] for metric, records in found.items() if records}


def read_documents(reader: Reader, folder: Path, stage: StageRecord) -> None:
    """What curation left beside its documents."""
    path = folder / "funnel.json"
    steps = reader.value(path)
    stage.funnel = reader.records(path, FunnelStep, steps if isinstance(steps, list) else [])
    path = folder / "removed.jsonl"
    stage.removed = reader.records(path, RemovedDocument, reader.rows(path))
    path = folder / "rewritten.jsonl"
    stage.rewritten = reader.records(path, RewrittenDocument, reader.rows(path))
    path = folder / "problems.jsonl"
    stage.read_problems = reader.records(path, ReadProblem, reader.rows(path))
    names = {step.step for step in stage.funnel}
    for path in sorted(path for path in folder.glob("*.json") if path.stem in names):  # a step's own report
        content = reader.mapping(path)
        if "sets" in content:
            for evals in reader.records(path, Decontamination, [content]):
                stage.decontaminations[path.stem] = evals
        elif "bands" in content:
            for banding in reader.records(path, Banding, [content]):
                stage.bandings[path.stem] = banding
    try:
        stage.kept = kept_samples(sorted(folder.glob("part-*.parquet")))
    except (OSError, ValueError) as error:  # what Parquet's reader raises on files that are torn or something else
        reader.note(folder, f"its documents cannot be read ({error})")


def _stage_folder(root: Path, folder: Any) -> Path | None:
    """run.json names folders relative to the run; an absolute one that moved with its run is found by its last part."""
    if not isinstance(folder, str) or not folder:
        return None
    path = root / folder
    return path if path.is_dir() else root / Path(folder).name


def _within_run(config: str | None, folders: list[str]) -> str | None:
    """A stage's options with its inputs named relative to the run, without paths of this machine."""
    if config is None or not folders:
        return config
    return re.sub(rf"(?<=[\s\"'])/[^\s\"']*/(?=(?:{'|'.join(map(re.escape, folders))})\b)", "", config)


def _size(folder: Path) -> int | None:
    """Bytes below a folder; a running stage may delete a file between listing and measuring it."""
    try:
        return folder_bytes(folder)
    except OSError:
        return None


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _names(value: Any) -> list[str]:
    """An input is one stage name or path, or many of them as a list or a mapping."""
    if isinstance(value, dict):
        value = list(value.values())
    return [str(item) for item in value] if isinstance(value, list) else [str(value)] if value else []


def _claims(value: Any) -> list[Any]:
    """The claims of a verdict: a list, or a mapping from the claim to its numbers."""
    claims = value.get("claims", []) if isinstance(value, dict) else value
    if isinstance(claims, dict):
        return [{"claim": name, **(_mapping(rest) or {"held": rest})} for name, rest in claims.items()]
    return claims if isinstance(claims, list) else []
