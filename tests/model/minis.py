"""The miniatures of the presets, each architecture once, and a real corpus to train them on."""

from __future__ import annotations

import gzip
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from ingot.checkpoints.families.table import architecture
from ingot.model.config import ModelConfig
from ingot.model.presets.preset import presets
from ingot.tokens.config import VALIDATION, TokenizerConfig
from ingot.tokens.train_tokenizer import train_tokenizer
from ingot.train.pretrain import run as run_stage
from ingot.train.pretrain_config import PretrainConfig
from ingot.workspace.progress import Progress
from ingot.workspace.stage import StageFolder
from tests.train.pretraining import write_shards

SHORTEST, LONGEST = 200, 2200  # characters of a document: shorter and longer than a row of training


def distinct_minis() -> dict[str, ModelConfig]:
    """Every miniature by name; of those that compute the same (a system and one trained further) only the first."""
    found: dict[str, tuple[str, ModelConfig]] = {}
    for one in presets():
        if one.mini:
            parts = [architecture(one.model), one.model.model_dump(mode="json")["quantisation"]]
            found.setdefault(json.dumps(parts, sort_keys=True), (one.name, one.model))
    return dict(found.values())


MINIS = distinct_minis()


def switches(value: Any, path: str = "") -> set[tuple[str, Any]]:
    """Every option with its value, or that it has one where it is a number."""
    if isinstance(value, Mapping):
        return {found for key, inner in value.items() for found in switches(inner, f"{path}.{key}")}
    if isinstance(value, list):
        return {found for inner in value for found in switches(inner, path)}
    return {(path, value if isinstance(value, bool | str | None) else "a number")}


def covering(minis: Mapping[str, ModelConfig]) -> set[str]:
    """Few miniatures that together have every switch of every layer and model: about half of them."""
    having = dict[str, set[tuple[str, Any]]]()
    for name, config in minis.items():
        model = config.model_dump(mode="json", exclude={"layers", "export_as", "multi_token"})
        having[name] = switches(list(model.pop("blocks").values())) | switches(model, "model")
    missing, chosen = set[tuple[str, Any]]().union(*having.values()), set[str]()
    while missing:
        name = max(having, key=lambda name: len(having[name] & missing))
        chosen.add(name)
        missing -= having[name]
    return chosen


def covering_fast(names: Iterable[str]) -> list[Any]:
    """The names as values of a parameter; those that have no switch of their own are slow."""
    fast = covering({name: MINIS[name] for name in names})
    return [name if name in fast else pytest.param(name, marks=pytest.mark.slow) for name in names]


def mini(name: str, vocabulary: int) -> ModelConfig:
    """The miniature with a vocabulary."""
    return MINIS[name].model_copy(update={"vocabulary_size": vocabulary})


def few_layers(config: ModelConfig) -> ModelConfig:
    """Every kind of layer once and the first once more, 2 to 5 layers instead of 5 to 8: all parts, and one of them twice."""
    kinds = list(dict.fromkeys(config.layer_names))
    return ModelConfig.model_validate(config.model_dump() | {"layers": " ".join([*kinds, kinds[0]])})


@dataclass(frozen=True)
class Corpus:
    """Token shards of a text with their tokenizer, and the entropy of a token by itself, in nats."""

    inputs: dict[str, Path]
    unigram_entropy: float
    tokens: int


def shakespeare(shared_data: Path) -> list[str]:
    """Documents of uneven length: speeches of the plays, some together."""
    text = gzip.decompress((shared_data / "tinyshakespeare" / "input.txt.gz").read_bytes()).decode("utf-8")
    documents, current = list[str](), list[str]()
    for number, speech in enumerate(text.split("\n\n")):
        current.append(speech)
        if sum(map(len, current)) > SHORTEST + number * 997 % (LONGEST - SHORTEST):
            documents.append("\n\n".join(current))
            current = []
    return documents


def write_corpus(texts: list[str], vocabulary: int, folder: Path) -> Corpus:
    """A tokenizer of the texts and their shards; every twentieth text is held out."""
    tokenizer = train_tokenizer(texts, TokenizerConfig(vocabulary_size=vocabulary))
    tokenizer.save(folder / "tokenizer")
    held_out = texts[::20]
    trained = [text for number, text in enumerate(texts) if number % 20]
    write_shards(folder / "shards", tokenizer, {"text": trained, VALIDATION: held_out})
    counts = Counter(token for text in trained for token in [*tokenizer.encode(text), tokenizer.end_of_text])
    total = sum(counts.values())
    entropy = -sum(count / total * math.log(count / total) for count in counts.values())
    return Corpus({"tokenizer": folder / "tokenizer", "shards": folder / "shards"}, entropy, total)


def train(model: ModelConfig, corpus: Corpus, path: Path, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The pre-training stage on the corpus, on one thread of the CPU; the metrics of every step."""
    torch.set_num_threads(1)
    common = {
        "precision": "float32",
        "device": "cpu",
        "optimizer": {"lr": 3e-3},
        "checkpoints": {"every": options["steps"]},
        "validate_every": options["steps"],
        "validation_rows": 8,
        "phases": [{"until": 1.0, "weights": {"text": 1.0}}],
    }
    config = PretrainConfig.model_validate({**common, **options, "model": model.model_dump()})
    folder = StageFolder(path, seed=0, progress=Progress())
    run_stage(config, corpus.inputs, folder)
    return folder.metrics.read()


def mean_of_last(count: int, rows: list[dict[str, Any]], name: str) -> float:
    """The mean of a metric over the last `count` steps."""
    return sum(row[name] for row in rows[-count:]) / count
