"""The whole of synthesis: lineage, refusals, nothing asked twice, the stage with a server and with a checkpoint."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from ingot.data.synthesize.config import DocumentsConfig
from ingot.data.synthesize.flow import synthesize
from ingot.data.synthesize.writer import WriterPrompt, WriterSettings
from ingot.workspace.errors import DataError, Interrupted, RecipeError
from ingot.workspace.stage import StageFolder
from tests.data.synthesize.server import completion, serving
from tests.making.rows import read_rows
from tests.making.stages import stage_folder

LINE = "every passage of this little book tells of ships and storms and of the long way home across grey water"


def make_documents(folder: Path, count: int = 6) -> Path:
    rows = [
        {
            "id": f"doc-{number}",
            "text": f"Chapter {number + 1}. " + " ".join([LINE] * 4) + ".",
            "topic": "sea" if number % 2 else "land",
        }
        for number in range(count)
    ]
    folder.mkdir(parents=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "part-00000.parquet")
    return folder


class Rewriter:
    """Reverses the words of a passage: different enough, as long, with its numbers. Stops when told to."""

    name = "reverser"

    def __init__(self, stop_after: int | None = None) -> None:
        self.asked: list[str] = []
        self.stop_after = stop_after

    def answers(self, prompts: Sequence[WriterPrompt], settings: WriterSettings) -> Iterator[tuple[int, str | None]]:
        for number, prompt in reversed(list(enumerate(prompts))):
            if self.stop_after is not None and len(self.asked) >= self.stop_after:
                raise Interrupted
            self.asked.append(prompt.text)
            text = prompt.text.split("Text:\n")[1]
            yield number, "I am sorry." if "Chapter 3" in text else " ".join(reversed(text.split()))


def made(folder: StageFolder) -> list[dict[str, Any]]:
    paths = sorted((folder.path / "documents").glob("part-*.parquet"))
    rows = [row for path in paths for row in pyarrow.parquet.read_table(path).to_pylist()]
    return [row for row in rows if "parent_id" in row]


def test_samples_carry_their_lineage_and_refusals_their_reason(tmp_path: Path) -> None:
    documents = make_documents(tmp_path / "in")
    config = DocumentsConfig.model_validate(
        {"tasks": [{"task": "rephrase", "per_passage": 2, "where": {"topic": "land"}}]}
    )
    folder = stage_folder(tmp_path / "out")
    tallies = synthesize(config, documents, folder, Rewriter())
    assert tallies == {"rephrase": {"requests": 6, "accepted": 4, "refused": {"declined": 2}}}
    texts = {row["id"]: row["text"] for row in pyarrow.parquet.read_table(documents / "part-00000.parquet").to_pylist()}
    rows = made(folder)
    assert len({row["id"] for row in rows}) == 4 and {row["parent_id"] for row in rows} == {"doc-0", "doc-4"}
    for row in rows:
        parent = texts[row["parent_id"]][row["parent_start"] : row["parent_end"]]
        assert hashlib.sha256(parent.encode()).hexdigest() == row["parent_sha256"]
        assert row["text"] == " ".join(reversed(parent.split()))
        assert (row["writer"], row["task"], row["source"], row["verified"]) == (
            "reverser",
            "rephrase",
            "synthetic-rephrase",
            "checks",
        )
    refused = read_rows(folder.path / "rejected.jsonl")
    assert [row["reason"] for row in refused] == ["declined"] * 2
    kept = pyarrow.parquet.read_table(folder.path / "documents/part-00000.parquet")
    assert kept.column("id").to_pylist() == list(texts), "the given documents are still there"


def test_an_interrupted_run_asks_nothing_twice_and_ends_the_same(tmp_path: Path) -> None:
    documents = make_documents(tmp_path / "in", 12)
    config = DocumentsConfig.model_validate({"tasks": [{"task": "rephrase"}], "keep_documents": False})
    whole = stage_folder(tmp_path / "whole")
    synthesize(config, documents, whole, Rewriter())
    cut = stage_folder(tmp_path / "cut")
    first, second, third = Rewriter(stop_after=5), Rewriter(), Rewriter()
    with pytest.raises(Interrupted):
        synthesize(config, documents, cut, first)
    with (cut.path / "answers.jsonl").open("a") as file:
        file.write('{"key": "abc", "ans')  # a line that was being written
    synthesize(config, documents, cut, second)
    assert len(first.asked) == 5 and len(second.asked) == 7 and not set(first.asked) & set(second.asked)
    name = "documents/part-00000.parquet"
    assert (cut.path / name).read_bytes() == (whole.path / name).read_bytes()
    synthesize(config, documents, cut, third)
    assert third.asked == []
    other = DocumentsConfig.model_validate({"tasks": [{"task": "rephrase"}], "temperature": 0.1})
    synthesize(other, documents, cut, third)
    assert len(third.asked) == 12, "other sampling is another question"


def test_limits_shares_and_nothing_accepted(tmp_path: Path) -> None:
    documents = make_documents(tmp_path / "in", 40)
    few = DocumentsConfig.model_validate({"tasks": [{"task": "rephrase", "max_samples": 3}]})
    assert synthesize(few, documents, stage_folder(tmp_path / "few"), Rewriter())["rephrase"]["accepted"] == 3
    half = DocumentsConfig.model_validate({"tasks": [{"task": "rephrase", "share": 0.5}]})
    requests = synthesize(half, documents, stage_folder(tmp_path / "half"), Rewriter())["rephrase"]["requests"]
    assert 10 <= requests <= 30
    none = DocumentsConfig.model_validate({"tasks": [{"task": "rephrase", "min_length_ratio": 2.0}]})
    with pytest.raises(DataError, match="too short"):
        synthesize(none, documents, stage_folder(tmp_path / "none"), Rewriter())


def test_counting_needs_no_writer_and_the_stage_says_who_is_missing(tmp_path: Path) -> None:
    from ingot.inference.synthesize import run

    documents = tmp_path / "in"
    documents.mkdir()
    text = "harbour " * 5 + "lantern " * 9 + "compass " * 14 + "and then " * 200
    rows = [{"id": "a", "text": text}, {"id": "b", "text": "something else entirely " * 300}]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), documents / "part-00000.parquet")
    task = {"task": "count", "shortest": 100, "words": 2, "max_count": 20}
    config = DocumentsConfig.model_validate({"tasks": [task]})
    folder = stage_folder(tmp_path / "out")
    assert run(config, {"documents": documents}, folder)["tasks"]["count"]["accepted"] >= 1
    assert {row["writer"] for row in made(folder)} == {"program"}
    asking = DocumentsConfig.model_validate({"tasks": [task, {"task": "notes"}]})
    with pytest.raises(RecipeError, match="neither an endpoint nor a checkpoint"):
        run(asking, {"documents": documents}, stage_folder(tmp_path / "asking"))


def test_the_stage_with_a_server(tmp_path: Path) -> None:
    from ingot.inference.synthesize import run

    def reverse(body: dict[str, Any], _: dict[str, str]) -> Any:
        return completion(" ".join(reversed(body["messages"][0]["content"].split("Text:\n")[1].split())))

    documents = make_documents(tmp_path / "in")
    with serving(reverse) as url:
        config = DocumentsConfig.model_validate(
            {"tasks": [{"task": "notes"}], "endpoint": {"url": url, "model": "big"}}
        )
        folder = stage_folder(tmp_path / "out")
        assert run(config, {"documents": documents}, folder)["tasks"]["notes"]["accepted"] == 6
    assert {row["writer"] for row in made(folder)} == {"big"}


def test_a_checkpoint_answers_and_the_same_seed_gives_the_same_text(tmp_path: Path) -> None:
    from ingot.inference.synthesize import CheckpointWriter
    from tests.post.making import checkpoint_of, tiny_model, tiny_tokenizer

    path = checkpoint_of(tiny_model(tiny_tokenizer(), std=0.05), tmp_path / "checkpoint")
    writer = CheckpointWriter(path)
    settings = WriterSettings(temperature=1.0, top_p=1.0, max_tokens=5)
    prompts = [
        WriterPrompt("What is 2 + 2?", 1),
        WriterPrompt("What is 2 + 2?", 2),
        WriterPrompt("Say " + "much " * 5000, 3),
    ]
    first, again = (dict(writer.answers(prompts, settings)) for _ in range(2))
    assert first == again and first[2] is None, "what does not fit gets no answer"
    assert isinstance(first[0], str) and first[0] != first[1]
    alone = dict(writer.answers(prompts[1:2], settings))
    assert alone[0] == first[1], "whatever else is in the batch"
