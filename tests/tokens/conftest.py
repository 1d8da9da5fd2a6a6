"""Fixtures of the tokens room: a tokenizer trained in a blink, and a small documents artifact."""

from __future__ import annotations

import hashlib
import inspect
import json
import pydoc
import string
import textwrap
from pathlib import Path
from typing import Protocol

import pyarrow
import pyarrow.parquet
import pytest

from ingot.tokens.chat import ChatFormat
from ingot.tokens.config import TokenizerConfig
from ingot.tokens.tokenizer import Tokenizer
from ingot.tokens.train_tokenizer import train_tokenizer
from ingot.workspace.stage import StageFolder
from tests.making.stages import stage_folder

MODULES = (string, textwrap, json, pydoc, inspect)


class WriteDocuments(Protocol):
    """Writes rows as a documents artifact of so many files, and gives back its folder."""

    def __call__(self, folder: Path, rows: list[dict[str, object]], files: int = 2) -> Path: ...


def corpus() -> list[dict[str, object]]:
    """Functions of the standard library as code and their docstrings as prose: real text that every machine has."""
    rows: list[dict[str, object]] = []
    for module in MODULES:
        for name, function in sorted(vars(module).items()):
            if not inspect.isfunction(function) or function.__module__ != module.__name__:
                continue
            source, prose = inspect.getsource(function), inspect.getdoc(function)
            place = f"{module.__name__}.{name}"
            rows.append({"id": f"{place}/code", "text": source, "kind": "code"})
            if prose:
                rows.append({"id": f"{place}/prose", "text": prose, "kind": "prose"})
    for number, row in enumerate(rows):
        row |= {"source": "stdlib", "quality": (number * 37 % 100) / 100}
    return rows


def held_ids(rows: list[dict[str, object]], share: float) -> set[str]:
    """The ids of the documents that are held out, from the definition: about `share` of all by a hash of the id."""
    ids = [str(row["id"]) for row in rows]
    place = {id: int(hashlib.blake2b(f"held out\0{id}".encode(), digest_size=8).hexdigest(), 16) / 2**64 for id in ids}
    return {id for id in ids if place[id] < share} or {min(ids, key=place.__getitem__)}


def write(folder: Path, rows: list[dict[str, object]], files: int = 2) -> Path:
    """Write rows as a documents artifact."""
    folder.mkdir(parents=True, exist_ok=True)
    size = -(-len(rows) // files)
    for number in range(files):
        table = pyarrow.Table.from_pylist(rows[number * size : (number + 1) * size])
        pyarrow.parquet.write_table(table, folder / f"part-{number:05d}.parquet", compression="zstd")
    return folder


@pytest.fixture(scope="session")
def rows() -> list[dict[str, object]]:
    return corpus()


@pytest.fixture(scope="session")
def write_documents() -> WriteDocuments:
    return write


@pytest.fixture(scope="session")
def documents(tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, object]]) -> Path:
    return write(tmp_path_factory.mktemp("documents") / "documents", rows)


@pytest.fixture(scope="session")
def tokenizer(rows: list[dict[str, object]]) -> Tokenizer:
    return train_tokenizer([str(row["text"]) for row in rows], TokenizerConfig(vocabulary_size=700))


@pytest.fixture(scope="session")
def chat(tokenizer: Tokenizer) -> ChatFormat:
    return ChatFormat(tokenizer)


@pytest.fixture
def folder(tmp_path: Path) -> StageFolder:
    return stage_folder(tmp_path / "stage")
