"""Embeddings of documents: of a sentence-embedding model in a folder, or a column of the user's own; length one.

    embedding = mean over tokens of the model's last layer (padding left out), divided by its length

which is what sentence-transformers computes for all-MiniLM-L6-v2 and most of its kin.

Invariant: every row has length one, or is all zero where there is nothing to embed (and is then like nothing else).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ingot.data.steps.semantic_dedup import SemanticDedupStep
from ingot.workspace.errors import DataError

if TYPE_CHECKING:
    import pyarrow

Vectors = NDArray[np.float32]

BATCH_TEXTS = 64
CHARACTERS_A_TOKEN = 16  # more characters than this times max_tokens are not even given to the tokenizer


def embed(documents: pyarrow.Table, config: SemanticDedupStep) -> Vectors:
    """An embedding for every document."""
    if config.embedding_column is not None:
        return of_column(documents, config.embedding_column)
    assert config.model is not None
    return of_model(documents.column("text").to_pylist(), config.model, config.max_tokens)


def unit(vectors: Vectors) -> Vectors:
    """The vectors at length one; zero stays zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)


def of_column(documents: pyarrow.Table, name: str) -> Vectors:
    """The user's embeddings; a missing one is zero."""
    rows = documents.column(name).to_pylist()
    widths = {len(row) for row in rows if row is not None}
    if len(widths) > 1:
        raise DataError(
            f"embeddings of different lengths: {', '.join(map(str, sorted(widths)))}",
            place=f"semantic_dedup: embedding_column: {name}",
            fix="give every document an embedding of the same model",
        )
    width = widths.pop() if widths else 1
    return unit(np.array([row if row is not None else [0.0] * width for row in rows], np.float32).reshape(-1, width))


def of_model(texts: list[str | None], folder: Path, max_tokens: int) -> Vectors:
    """The embeddings of a model folder, in batches of similar length."""
    if not (folder / "config.json").is_file():
        raise DataError(
            "this is not the folder of a model: it has no config.json",
            place=f"semantic_dedup: model: {folder}",
            fix="name a folder with config.json, model.safetensors and tokenizer.json",
        )
    try:
        import torch
        from transformers import AutoModel, AutoTokenizer
    except ModuleNotFoundError as error:
        raise DataError(f"embedding texts needs the package {error.name}", fix=f"pip install {error.name}") from None

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = AutoModel.from_pretrained(folder, local_files_only=True).eval()
    beginnings = [(text or "")[: max_tokens * CHARACTERS_A_TOKEN] for text in texts]
    found = np.zeros((len(texts), int(model.config.hidden_size)), np.float32)
    order = sorted((row for row, text in enumerate(beginnings) if text.strip()), key=lambda row: len(beginnings[row]))
    with torch.inference_mode():
        for first in range(0, len(order), BATCH_TEXTS):
            rows = order[first : first + BATCH_TEXTS]
            batch = tokenizer(
                [beginnings[row] for row in rows],
                truncation=True,
                max_length=max_tokens,
                padding=True,
                return_tensors="pt",
            )
            states = model(**batch).last_hidden_state
            mask = batch["attention_mask"][:, :, None].to(states.dtype)
            found[rows] = ((states * mask).sum(1) / mask.sum(1)).float().numpy()
    return unit(found)
