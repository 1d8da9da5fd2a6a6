"""Makes documents from documents: requests, answers, checks, samples. Read `synthesize` from top to bottom.

    documents -> passages -> requests -> answers (asked once, stored in answers.jsonl) -> checks -> documents/

Invariant: an answer is on disk before it is used, under the key of its question, so that an interrupted run asks nothing twice;
every refused answer is stored with its reason in rejected.jsonl. Which passages are taken depends on their ids only.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from ingot.data.synthesize.config import DocumentsConfig
from ingot.data.synthesize.sample import MadeDocument, Refused, SourcePassage, WriterRequest, passages
from ingot.data.synthesize.task import SynthesisTask
from ingot.data.synthesize.writer import Writer, WriterPrompt, WriterSettings
from ingot.workspace.errors import ArtifactError, DataError
from ingot.workspace.files import atomic_folder
from ingot.workspace.stage import StageFolder

WINDOW = 256  # requests that are looked at together: enough to fill a server, few enough to lose
SHOWN_CHARACTERS = 2000


@dataclass
class TaskTally:
    """What one task came to."""

    requests: int = 0
    accepted: int = 0
    refused: Counter[str] = field(default_factory=Counter)


def synthesize(
    config: DocumentsConfig, documents: Path, folder: StageFolder, writer: Writer | None
) -> dict[str, dict[str, Any]]:
    """Make the stage's `documents` artifact; returns what each task came to."""
    settings = WriterSettings(config.temperature, config.top_p, config.max_tokens)
    tallies: dict[str, TaskTally] = {}
    samples: list[MadeDocument] = []
    folder.progress.start(len(config.tasks), unit="task")
    with AnswerStore(folder.path / "answers.jsonl") as answers, (folder.path / "rejected.jsonl").open("w") as rejected:
        for number, task in enumerate(config.tasks):
            tally = tallies.setdefault(task.short_name, TaskTally())
            limit = task.max_samples
            requests = task.requests(partial(sections, task, documents))
            while (limit is None or tally.accepted < limit) and (window := list(islice(requests, WINDOW))):
                folder.stop.check()
                tally.requests += len(window)
                for request, answer in answers.of(task, window, writer, settings, folder.seed):
                    if limit is not None and tally.accepted == limit:
                        break
                    try:
                        text = checked(task, request, answer)
                    except Refused as reason:
                        tally.refused[str(reason)] += 1
                        row = {"task": task.short_name, "passage": request.passage.id, "reason": str(reason)}
                        rejected.write(json.dumps({**row, "answer": (answer or "")[:SHOWN_CHARACTERS]}) + "\n")
                    else:
                        samples.append(made(task, request, text, writer))
                        tally.accepted += 1
                folder.progress.advance(
                    number, task=task.short_name, samples=tally.accepted, refused=tally.refused.total()
                )
            folder.progress.advance(number + 1)
    if not samples:
        raise DataError(
            "not one sample was accepted: "
            + "; ".join(f"{name}: {dict(tally.refused)}" for name, tally in tallies.items()),
            place="synthesize",
            fix="look at rejected.jsonl in the stage's folder, and loosen the checks or choose other documents",
        )
    write(samples, documents if config.keep_documents else None, folder.artifact("documents"))
    return {
        name: {"requests": tally.requests, "accepted": tally.accepted, "refused": dict(tally.refused.most_common())}
        for name, tally in tallies.items()
    }


def checked(task: SynthesisTask, request: WriterRequest, answer: str | None) -> str:
    """The document that an answer becomes; raises `Refused`."""
    if answer is None and task.asks:
        raise Refused("no answer")
    return task.check(request, answer or "")


def sections(task: SynthesisTask, documents: Path) -> Iterator[SourcePassage]:
    """The passages of all documents that a task takes."""
    import pyarrow
    import pyarrow.parquet

    files = sorted(documents.glob("part-*.parquet"))
    if not files:
        raise ArtifactError("no part-*.parquet files", place=str(documents), fix="run the curate stage first")
    where = getattr(task, "where", {})
    for path in files:
        try:
            batches = pyarrow.parquet.ParquetFile(path).iter_batches(256, columns=["id", "text", *where])
            for row in (row for batch in batches for row in batch.to_pylist()):
                wanted = ((row[name], [value] if isinstance(value, str) else value) for name, value in where.items())
                if all(found in values for found, values in wanted):
                    yield from passages(row["id"], row["text"], task.shortest, task.longest)
        except (pyarrow.ArrowException, OSError) as error:
            fix = "run the curate stage again, with steps that write the columns in `where`"
            raise ArtifactError(f"cannot be read: {error}", place=str(path), fix=fix) from error


def made(task: SynthesisTask, request: WriterRequest, text: str, writer: Writer | None) -> MadeDocument:
    """The sample of an accepted answer."""
    name = writer.name if task.asks and writer is not None else "program"
    return MadeDocument(f"{request.passage.id}/{request.task}-{request.variant}", text, request, name, task.verified)


class AnswerStore:
    """Answers by the key of their question, on disk as soon as they are there. A line that was cut off is asked again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known: dict[str, str] = {}

    def __enter__(self) -> AnswerStore:
        if self.path.exists():
            for line in self.path.read_text(encoding="utf-8", errors="replace").split("\n"):
                try:
                    row = json.loads(line)
                except json.JSONDecodeError:
                    continue
                self.known[row["key"]] = row["answer"]
        self.file = self.path.open("a", encoding="utf-8")
        self.file.write("\n")  # ends a line that a kill cut off
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def of(
        self,
        task: SynthesisTask,
        requests: list[WriterRequest],
        writer: Writer | None,
        settings: WriterSettings,
        seed: int,
    ) -> Iterator[tuple[WriterRequest, str | None]]:
        """Every request with its answer, in the order of the requests; only what is not known is asked."""
        if not task.asks:
            yield from ((request, None) for request in requests)
            return
        assert writer is not None, "the stage has checked that there is a writer"
        keys = [request.key(writer.name, {**asdict(settings), "seed": seed}) for request in requests]
        missing = [at for at, key in enumerate(keys) if key not in self.known]
        prompts = [WriterPrompt(requests[at].prompt, int(keys[at][:7], 16)) for at in missing]
        for number, answer in writer.answers(prompts, settings):
            if answer is not None:
                self.known[keys[missing[number]]] = answer
                self.file.write(json.dumps({"key": keys[missing[number]], "answer": answer}) + "\n")
                self.file.flush()
        yield from ((request, self.known.get(key)) for request, key in zip(requests, keys, strict=True))


def write(samples: list[MadeDocument], documents: Path | None, target: Path) -> None:
    """The artifact: the given documents as they are (if any), then the samples with their lineage."""
    import pyarrow
    import pyarrow.parquet

    with atomic_folder(target) as temporary:
        given_parts = sorted(documents.glob("part-*.parquet")) if documents is not None else []
        for part in given_parts:
            shutil.copyfile(part, temporary / part.name)
        if not samples:
            return
        table = pyarrow.Table.from_pylist([sample.row() for sample in samples])
        name = f"part-{len(given_parts):05d}.parquet"
        pyarrow.parquet.write_table(table, temporary / name, compression="zstd", row_group_size=1024)
