"""The tokenize stage: what lands in which source, compared with the documents themselves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ingot.tokens.config import TokenizeConfig
from ingot.tokens.documents import held_out
from ingot.tokens.shards import Shards, Source
from ingot.tokens.tokenize import STAGE
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.errors import DataError, Interrupted
from ingot.workspace.stage import StageFolder

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


def texts(source: Source, tokenizer: Tokenizer) -> list[str]:
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
    summary = STAGE.run(CONFIG, inputs, folder)
    shards = Shards(folder.path / "shards", verify=True)
    outside = held_out([str(row["id"]) for row in rows], 0.1)
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
        assert texts(source, tokenizer) == [row["text"] for row in chosen]
        assert source.text_bytes.tolist() == [len(str(row["text"]).encode()) for row in chosen]
        np.testing.assert_allclose(source.quality, [float(str(row["quality"])) for row in chosen])
        assert summary["sources"][name]["documents"] == len(chosen)
    assert summary["unused_documents"] == 0
    held = {str(row["text"]) for row in expected["validation"]}
    assert held, "something is held out"


def test_token_bytes_sum_to_the_text(inputs: dict[str, Path], folder: StageFolder) -> None:
    STAGE.run(CONFIG, inputs, folder)
    shards = Shards(folder.path / "shards")
    for source in shards.sources.values():
        ids = source.read(0, len(source))
        assert shards.token_bytes[ids].sum() == source.text_bytes.sum()


def test_validation_of_one_kind(inputs: dict[str, Path], folder: StageFolder, rows: list[dict[str, object]]) -> None:
    config = CONFIG.model_copy(update={"validation_kind": "prose"})
    summary = STAGE.run(config, inputs, folder)
    outside = held_out([str(row["id"]) for row in rows], 0.1)
    kinds = [row["kind"] for row in rows if row["id"] in outside]
    assert summary["sources"]["validation"]["documents"] == kinds.count("prose")
    assert summary["unused_documents"] == kinds.count("code") > 0


def test_the_same_twice_and_over_an_older_one(inputs: dict[str, Path], folder: StageFolder) -> None:
    STAGE.run(CONFIG, inputs, folder)
    index = (folder.path / "shards" / "index.json").read_bytes()
    STAGE.run(CONFIG, inputs, folder)
    assert (folder.path / "shards" / "index.json").read_bytes() == index


def test_nothing_half_written_is_left(inputs: dict[str, Path], folder: StageFolder) -> None:
    config = TokenizeConfig.model_validate({"sources": {"none": {"quality_at_least": 1}}})
    with pytest.raises(DataError, match="source none: no document"):
        STAGE.run(config, inputs, folder)
    folder.stop.request()
    with pytest.raises(Interrupted):
        STAGE.run(CONFIG, inputs, folder)
    assert list(folder.path.iterdir()) == []
