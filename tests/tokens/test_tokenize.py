"""The tokenize stage: what lands in which source, compared with the documents themselves."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from ingot.tokens import tokenize as module
from ingot.tokens.config import TokenizeConfig
from ingot.tokens.shards import MappedSource, Shards
from ingot.tokens.tokenize import run as run_stage
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.errors import ArtifactError, DataError, Interrupted
from ingot.workspace.stage import StageFolder
from tests.making.stages import stage_folder
from tests.tokens.conftest import WriteDocuments, held_ids

CONFIG = TokenizeConfig.model_validate(
    {
        "sources": {"prose": {"kind": "prose"}, "code": {"kind": "code"}, "best": {"quality_at_least": 0.7}},
        "validation_share": 0.1,
    }
)


@pytest.fixture
def inputs(documents: Path, tokenizer: Tokenizer, tmp_path: Path) -> dict[str, Path]:
    tokenizer.save(tmp_path / "tokenizer")
    return {"documents": documents, "tokenizer": tmp_path / "tokenizer"}


def texts(source: MappedSource, tokenizer: Tokenizer) -> list[str]:
    """The documents of a source, decoded; each must end with the end-of-text token and hold it nowhere else."""
    found = []
    for start, end in zip(source.starts, [*source.starts[1:], len(source)], strict=True):
        ids = source.read(int(start), int(end)).tolist()
        assert ids.index(0) == len(ids) - 1
        found.append(tokenizer.decode(ids[:-1]))
    return found


def test_every_document_lands_where_it_belongs(
    inputs: dict[str, Path], folder: StageFolder, tokenizer: Tokenizer, rows: list[dict[str, object]]
) -> None:
    summary = run_stage(CONFIG, inputs, folder)
    shards = Shards(folder.path / "shards", verify=True)
    outside = held_ids(rows, 0.1)
    train = [row for row in rows if row["id"] not in outside]
    expected = {
        "prose": [row for row in train if row["kind"] == "prose"],
        "code": [row for row in train if row["kind"] == "code"],
        "best": [row for row in train if float(str(row["quality"])) >= 0.7],
        "validation": [row for row in rows if row["id"] in outside],
    }
    assert set(shards.sources) == set(expected)
    for name, chosen in expected.items():
        source = shards.source(name)
        found = list(zip(texts(source, tokenizer), source.quality.tolist(), source.text_bytes.tolist(), strict=True))
        wanted = [(str(row["text"]), np.float32(str(row["quality"])), len(str(row["text"]).encode())) for row in chosen]
        assert sorted(found) == sorted(wanted)
        assert len(chosen) < 10 or found != wanted, "their order is another one"
        assert summary["sources"][name]["documents"] == len(chosen)
    assert summary["unused_documents"] == 0
    held = {str(row["text"]) for row in expected["validation"]}
    assert held, "something is held out"


def test_token_bytes_sum_to_the_text(inputs: dict[str, Path], folder: StageFolder) -> None:
    run_stage(CONFIG, inputs, folder)
    shards = Shards(folder.path / "shards")
    for source in shards.sources.values():
        ids = source.read(0, len(source))
        assert shards.token_bytes[ids].sum() == source.text_bytes.sum()


def test_validation_of_one_kind(inputs: dict[str, Path], folder: StageFolder, rows: list[dict[str, object]]) -> None:
    config = CONFIG.model_copy(update={"validation_kind": "prose"})
    summary = run_stage(config, inputs, folder)
    outside = held_ids(rows, 0.1)
    kinds = [row["kind"] for row in rows if row["id"] in outside]
    assert summary["sources"]["validation"]["documents"] == kinds.count("prose")
    assert summary["unused_documents"] == kinds.count("code") > 0


def test_the_same_twice_and_over_an_older_one(inputs: dict[str, Path], folder: StageFolder) -> None:
    run_stage(CONFIG, inputs, folder)
    index = (folder.path / "shards" / "index.json").read_bytes()
    run_stage(CONFIG, inputs, folder)
    assert (folder.path / "shards" / "index.json").read_bytes() == index


def written(folder: StageFolder) -> dict[str, bytes]:
    shards = folder.path / "shards"
    return {str(path.relative_to(shards)): path.read_bytes() for path in sorted(shards.rglob("*")) if path.is_file()}


def test_the_same_bytes_for_any_files_and_workers(
    inputs: dict[str, Path],
    rows: list[dict[str, object]],
    write_documents: WriteDocuments,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ingot.data.engine.work.SMALL_BYTES", 0)  # small as it is, use the processes
    found = []
    for number, (files, workers, ordered) in enumerate([(1, 1, rows), (5, 2, rows), (3, 1, rows[::-1])]):
        documents = write_documents(tmp_path / f"documents-{number}", ordered, files)
        folder = stage_folder(tmp_path / f"stage-{number}")
        run_stage(CONFIG.model_copy(update={"workers": workers}), {**inputs, "documents": documents}, folder)
        found.append(written(folder))
        assert [path.name for path in folder.path.iterdir()] == ["shards"], "nothing else is left"
    assert found[0] == found[1] == found[2]
    other = stage_folder(tmp_path / "other", seed=2)
    run_stage(CONFIG, inputs, other)
    assert written(other) != found[0], "another seed, another order"


def test_any_column_routes_and_copies_are_written(
    inputs: dict[str, Path],
    rows: list[dict[str, object]],
    write_documents: WriteDocuments,
    folder: StageFolder,
    tokenizer: Tokenizer,
    tmp_path: Path,
) -> None:
    plain: list[dict[str, object]] = [
        {"id": row["id"], "text": row["text"], "topic": "abc"[number % 3], "copies": number % 4}
        for number, row in enumerate(rows)
    ]
    documents = write_documents(tmp_path / "documents", plain)
    config = TokenizeConfig.model_validate(
        {
            "sources": {"one": {"where": {"topic": "a"}}, "two": {"where": {"topic": ["b", "c"]}}},
            "validation_share": 0.2,
        }
    )
    summary = run_stage(config, {**inputs, "documents": documents}, folder)
    shards, outside = Shards(folder.path / "shards", verify=True), held_ids(plain, 0.2)
    expected: dict[str, list[str]] = {"one": [], "two": [], "validation": []}
    for row in plain:
        name = "validation" if row["id"] in outside else "one" if row["topic"] == "a" else "two"
        copies = int(str(row["copies"]))
        expected[name] += [str(row["text"])] * (min(copies, 1) if name == "validation" else copies)
    for name, wanted in expected.items():
        found = texts(shards.source(name), tokenizer)
        assert sorted(found) == sorted(wanted)
        assert np.isnan(shards.source(name).quality).all(), "nobody judged them"
    together = texts(shards.source("two"), tokenizer)
    repeated = sum(left == right for left, right in pairwise(together))
    assert repeated < len(together) / 8, "copies of a document are not side by side"
    assert summary["unused_documents"] == sum(row["copies"] == 0 for row in plain)
    with pytest.raises(ArtifactError, match="the column 'language'"):
        wrong = TokenizeConfig.model_validate({"sources": {"one": {"where": {"language": "en"}}}})
        run_stage(wrong, {**inputs, "documents": documents}, folder)
    with pytest.raises(ArtifactError, match="the column 'kind'"):
        run_stage(CONFIG, {**inputs, "documents": documents}, folder)


def test_a_killed_run_goes_on(inputs: dict[str, Path], folder: StageFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both parts are there when the writing fails; the next run encodes nothing again."""
    config = CONFIG.model_copy(update={"workers": 1})
    monkeypatch.setattr(module, "write_index", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        run_stage(config, inputs, folder)
    assert not (folder.path / "shards").exists()
    monkeypatch.undo()
    monkeypatch.setattr(module, "_encode", lambda *_: pytest.fail("a part was encoded again"))
    run_stage(config, inputs, folder)
    Shards(folder.path / "shards", verify=True)


def test_nothing_half_written_is_left(inputs: dict[str, Path], folder: StageFolder) -> None:
    config = TokenizeConfig.model_validate({"sources": {"none": {"quality_at_least": 1}}})
    with pytest.raises(DataError, match="source none: no document"):
        run_stage(config, inputs, folder)
    folder.stop.request()
    with pytest.raises(Interrupted):
        run_stage(CONFIG, inputs, folder)
    assert {path.name for path in folder.path.iterdir()} <= {"work"}
