"""The k likeliest tokens of a teacher at every token of an answer, which a student can be compared with (algorithms/top_k.py).

A sequence gets two vectors, `teacher_tokens` and `teacher_logprobs`, both [tokens, k] and aligned as streams are: row t is about
what stands in place of token t. Tokens outside of `response_mask` have none, and their rows are 0.

They may be saved while they are made (resumable.py): a line of FOLDER/START-STOP.jsonl is one sequence,

    {"count": tokens that are scored, "tokens": base64 of int32 [count, k], "logprobs": base64 of float32 [count, k]}
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ingot.inference.checksum import weights_checksum
from ingot.model.transformer import Transformer
from ingot.post.barrier import Between
from ingot.post.policy import ROWS, countable
from ingot.post.processes import ALONE, Processes
from ingot.post.resumable import Resumable
from ingot.tokens.batch import TokenSequence
from ingot.tokens.packing import make_batch
from ingot.train.batches import split_rows
from ingot.train.losses.score import score
from ingot.train.losses.terms import Distributions, Wants
from ingot.workspace.config import content_hash
from ingot.workspace.stage import StageFolder

PIECE = 256  # sequences that are saved together
Found = tuple[Tensor, Tensor]  # tokens and log-probabilities [count, k] of one sequence


def with_likeliest(
    model: Transformer,
    sequences: Sequence[TokenSequence],
    k: int,
    capacity: int,
    temperature: float = 1.0,
    processes: Processes = ALONE,
    folder: StageFolder | None = None,
) -> list[TokenSequence]:
    """The sequences with the model's likeliest tokens. The model is whole; several processes divide the sequences.

    With a `folder` they are saved in it, and what is there from before is not computed again.
    """
    made_by = [] if folder is None else [weights_checksum(model), capacity, temperature]

    def find(part: Sequence[TokenSequence], between: Between) -> list[Found]:
        return _find(model, part, k, capacity, temperature, between)

    return share_likeliest(find, made_by, sequences, k, processes, folder)


def share_likeliest(
    find: Callable[[Sequence[TokenSequence], Between], list[Found]],
    made_by: list[Any],
    sequences: Sequence[TokenSequence],
    k: int,
    processes: Processes = ALONE,
    folder: StageFolder | None = None,
) -> list[TokenSequence]:
    """The sequences with the likeliest tokens that `find` finds for some of them at a time; `made_by` names the teacher."""
    saved = None
    if folder is not None:
        texts = [[each.tokens, list(each.streams["response_mask"])] for each in sequences]
        made_from = content_hash([*made_by, k, texts], digits=24)
        saved = _saved(folder.path / "teacher", made_from, k, folder)

    def find_run(run: slice, between: Between) -> list[Found]:
        return [each for part in countable(sequences[run]) for each in find(part, between)]

    found = processes.share(len(sequences), find_run, saved)
    return [_with_vectors(sequence, *each) for sequence, each in zip(sequences, found, strict=True)]


@torch.no_grad()
def _find(
    model: Transformer, sequences: Sequence[TokenSequence], k: int, capacity: int, temperature: float, between: Between
) -> list[Found]:
    """Every scored token is stamped with its number among all of them, from 1, and found by it in whatever row it was."""
    numbered, counts, total = list[TokenSequence](), list[int](), 0
    for sequence in sequences:
        places = []
        for compared in scored_places(sequence):
            total += compared
            places.append(float(total * compared))
        numbered.append(TokenSequence(sequence.tokens, {"place": places}))
        counts.append(sum(scored_places(sequence)))

    def likeliest(tokens: Distributions) -> dict[str, Tensor]:
        values, ids = tokens.logits.log_softmax(dim=-1).topk(k)
        return {"tokens": ids.int(), "logprobs_of_them": values.float()}

    ids, values = torch.zeros(total + 1, k, dtype=torch.int32), torch.zeros(total + 1, k)
    for batch in split_rows(make_batch(numbered, capacity), ROWS):
        between()
        wants = Wants(measures=(likeliest,))
        found = score(model, batch.to(model.embedding.weight.device), temperature, wants=wants)
        at = found.streams["place"].long().cpu()
        ids[at], values[at] = found.measured["tokens"].cpu(), found.measured["logprobs_of_them"].cpu()
    return list(zip(ids[1:].split(counts), values[1:].split(counts), strict=True))


def scored_places(sequence: TokenSequence) -> list[bool]:
    """Which tokens are compared; the first one of a sequence is never predicted."""
    return [place > 0 and value != 0 for place, value in enumerate(sequence.streams["response_mask"])]


def _with_vectors(sequence: TokenSequence, ids: Tensor, values: Tensor) -> TokenSequence:
    places = torch.tensor(scored_places(sequence))
    shape = len(sequence.tokens), ids.shape[1]
    vectors = {"teacher_tokens": torch.zeros(shape, dtype=torch.int32), "teacher_logprobs": torch.zeros(shape)}
    vectors["teacher_tokens"][places], vectors["teacher_logprobs"][places] = ids, values
    return sequence.with_vectors(vectors)


def _saved(folder: Path, made_from: str, k: int, stage: StageFolder) -> Resumable[Found]:
    def to_row(found: Found) -> Any:
        ids, values = (base64.b64encode(each.numpy().tobytes()).decode() for each in found)
        return {"count": len(found[0]), "tokens": ids, "logprobs": values}

    def from_row(_: int, row: Any) -> Found:
        raw = (("tokens", np.int32), ("logprobs", np.float32))
        ids, values = (np.frombuffer(base64.b64decode(row[name]), dtype).reshape(-1, k) for name, dtype in raw)
        return torch.tensor(ids), torch.tensor(values)

    return Resumable(folder, made_from, PIECE, to_row, from_row, stage.progress.say)
