"""Gives a model new tokens, or another chat template: more rows in its embedding and its head, the old ones as they are.

A new row begins as the mean of the old ones, with a little noise of their spread, as transformers'
`resize_token_embeddings` does (Hewitt 2021): x ~ N(mean, 1e-9 Cov). A new token then gets an average logit and disturbs the
softmax little, which random rows of any size would not guarantee. With `start="words"` it begins as the mean of the tokens of
its name in words instead: `</tool_call>` as "end of tool call".

Rows that the model has beyond its tokenizer (a padded vocabulary) are used before any are added. A tied head stays tied.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from ingot.checkpoints.checkpoint import open_model, write_checkpoint
from ingot.checkpoints.convert import Meter, check_space, check_target
from ingot.checkpoints.stored_model import StoredModel
from ingot.checkpoints.tensors import Entry, Tensors
from ingot.tokens.add_tokens import token_names, with_special_tokens, with_template
from ingot.tokens.chat import ChatFormat
from ingot.tokens.extend import new_tokens
from ingot.tokens.format_files import with_format
from ingot.tokens.template_files import template_text
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.errors import ArtifactError
from ingot.workspace.files import atomic_folder
from ingot.workspace.interrupt import StopSignal
from ingot.workspace.progress import Progress

NOISE = 1e-9  # of the old rows' covariance
MATRICES = ("embedding.weight", "output.weight")
Start = Literal["mean", "words"]


def grow_model(
    source: str | Path,
    folder: str | Path,
    *,
    tokens: Sequence[str] = (),
    tokenizer: str | Path | None = None,
    template: str | None = None,
    template_options: Mapping[str, Any] | None = None,
    chat_format: str | None = None,
    start: Start = "mean",
    seed: int = 0,
    replace: bool = False,
    progress: Progress | None = None,
    stop: StopSignal | None = None,
) -> Path:
    """Write the model at `source` with these tokens (or groups of them), this chat template and this chat format as a checkpoint.

    `tokenizer` is the folder of one that extends the model's own (`ingot tokenizer extend`).
    """
    target = check_target(Path(folder), replace)
    stored = open_model(Path(source))
    text = None if template is None else template_text(template, template_options)
    extended = None if tokenizer is None else Tokenizer.load(Path(tokenizer))
    grown = grow(stored, token_names(tokens), text, start, seed, extended, chat_format)
    check_space(target, grown.parameters.bytes)
    meter = Meter(grown, grown.parameters.bytes, progress or Progress(), stop or StopSignal())
    with atomic_folder(target) as temporary:
        write_checkpoint(grown, temporary, meter.add)
    return target


def grow(
    stored: StoredModel,
    names: Sequence[str],
    template: str | None = None,
    start: Start = "mean",
    seed: int = 0,
    extended: Tokenizer | None = None,
    chat_format: str | None = None,
) -> StoredModel:
    """The stored model with these special tokens and this template; its weights are read only where rows are made."""
    before = stored.tokenizer()
    if before is None:
        raise ArtifactError(
            "the model has no tokenizer to add tokens to", place=stored.place, fix="import the model with its tokenizer"
        )
    after = with_special_tokens(extended or before, names)
    new = new_tokens(before, after)
    if template is not None:
        after = with_template(after, template)
    if chat_format is not None:
        after = with_format(after, chat_format)
        ChatFormat(after)  # which says what is missing
    old_size = stored.config.vocabulary_size or before.vocabulary_size
    size = max(old_size, after.vocabulary_size)
    rows = {
        matrix: _new_rows(stored.parameters, matrix, before, [_words_of(id, after) for id in new], start, seed)
        for matrix in MATRICES
        if new and matrix in stored.parameters.entries
    }
    return dataclasses.replace(
        stored,
        config=stored.config.model_copy(update={"vocabulary_size": size}),
        parameters=GrownTensors(stored.parameters, rows, list(new), size),
        files=after.to_files(),
    )


class GrownTensors(Tensors):
    """Tensors of a model with more tokens: those in `rows` have `size` rows, and their rows `ids` are replaced by new ones."""

    def __init__(self, source: Tensors, rows: Mapping[str, Tensor], ids: Sequence[int], size: int) -> None:
        self.source, self._rows, self._ids = source, rows, list(ids)
        self.entries = {
            name: Entry((size, *entry.shape[1:]), entry.dtype) if name in rows else entry
            for name, entry in source.entries.items()
        }

    def ranges(self, name: str) -> Iterator[tuple[int, int]]:
        yield from self.source.ranges(name)
        old, new = self.source.entries[name].rows, self.entries[name].rows
        if new > old:
            yield old, new

    def rows(self, name: str, start: int, end: int) -> Tensor:
        old = self.source.entries[name].rows
        if name not in self._rows:
            return self.source.rows(name, start, end)
        entry = self.entries[name]
        values = torch.zeros(entry.part(start, end), dtype=entry.dtype)
        if start < old:
            values[: min(end, old) - start] = self.source.rows(name, start, min(end, old))
        for id, row in zip(self._ids, self._rows[name], strict=True):
            if start <= id < end:
                values[id - start] = row.to(entry.dtype)
        return values


def _new_rows(
    parameters: Tensors, matrix: str, tokenizer: Tokenizer, words: Sequence[str], start: Start, seed: int
) -> Tensor:
    """A row for each new token, from those of the tokens that the tokenizer had; `words` say what each new one means."""
    used = min(tokenizer.vocabulary_size, parameters.entries[matrix].rows)
    old = torch.cat([values for _, _, values in parameters.chunks(matrix)])[:used].float()
    mean = old.mean(0)
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(len(words), used, generator=generator) @ (old - mean) * (NOISE / used) ** 0.5  # N(0, 1e-9 Cov)
    if start == "mean":
        return mean + noise
    return torch.stack([old[tokenizer.encode(each)].mean(0) for each in words]) + noise


def _words_of(id: int, tokenizer: Tokenizer) -> str:
    """What a token means: its own text, or the words of a special one's name."""
    text = tokenizer.piece(id)
    return in_words(text) if text in tokenizer.special else text


def in_words(name: str) -> str:
    """A token's name as words: what a model knows of its meaning before it has seen it."""
    words = re.sub(r"[\W_]+", " ", name).strip() or name
    return f"end of {words}" if name.startswith("</") else f"start of {words}"
