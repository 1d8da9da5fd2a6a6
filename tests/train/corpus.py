"""A real corpus, and the pre-training stage on it."""

from __future__ import annotations

import gzip
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ingot.model.config import ModelConfig
from ingot.tokens.config import VALIDATION, TokenizerConfig
from ingot.tokens.train_tokenizer import train_tokenizer
from ingot.train.pretrain import run as run_stage
from ingot.train.pretrain_config import PretrainConfig
from tests.making.stages import stage_folder
from tests.train.pretraining import write_shards

SHORTEST, LONGEST = 200, 2200  # characters of a document: shorter and longer than a row of training


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
    folder = stage_folder(path, seed=0)
    run_stage(config, corpus.inputs, folder)
    return folder.metrics.read()


def mean_of_last(count: int, rows: list[dict[str, Any]], name: str) -> float:
    """The mean of a metric over the last `count` steps."""
    return sum(row[name] for row in rows[-count:]) / count
