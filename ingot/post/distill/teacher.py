"""A teacher of distillation: a frozen model that grades tokens, in this process or on a server (remote_teacher.py).

reads        the student's own tokens if their vocabularies are one; else the conversation in its own template and tokens
log p        of every token of given sequences
likeliest    tokens at every token of an answer
states       its hidden states, from which its head makes whole distributions; of a model in this process only
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from ingot.model.transformer import Transformer
from ingot.post.distill.top_tokens import with_likeliest
from ingot.post.policy import ROWS, sequence_logprobs
from ingot.post.processes import Processes
from ingot.tokens.batch import TokenSequence
from ingot.tokens.packing import make_batch
from ingot.tokens.respell import Respeller
from ingot.train.batches import split_rows
from ingot.train.losses.gold import Shared
from ingot.train.losses.score import Picked, run_model, score_states
from ingot.workspace.errors import CheckFailed, RecipeError
from ingot.workspace.stage import StageFolder


class Teacher(ABC):
    """What grades the student. `respeller`: how it reads what the student wrote; None: the student's tokens are its own."""

    def __init__(self, name: str, respeller: Respeller | None) -> None:
        self.name, self.respeller = name, respeller

    @abstractmethod
    def logprobs(
        self, sequences: Sequence[TokenSequence], capacity: int, temperature: float, processes: Processes
    ) -> list[list[float]]:
        """log p of every token of sequences of its own tokens, 0 for the first; `capacity` is a row's length."""

    @abstractmethod
    def with_likeliest(
        self,
        sequences: Sequence[TokenSequence],
        k: int,
        capacity: int,
        temperature: float,
        processes: Processes,
        folder: StageFolder | None = None,
    ) -> list[TokenSequence]:
        """The sequences with its k likeliest tokens (top_tokens.py)."""

    @property
    def model(self) -> Transformer:
        """The model, for algorithms that compare whole distributions."""
        raise RecipeError(
            f"the teacher {self.name} is on a server, which gives no hidden states",
            place="distill.endpoints",
            fix="use algorithm: reverse_kl or top_k, or a teacher checkpoint in `inputs`",
        )

    @torch.no_grad()
    def states(self, texts: Sequence[list[int]], capacity: int, temperature: float) -> tuple[Tensor, Tensor, list[int]]:
        """The state that predicts each token of the texts, one text after the other; log p of it; and where each text begins."""
        sequences, starts, total = list[TokenSequence](), list[int](), 1  # from 1: a stream of 0 means "not scored"
        for tokens in texts:
            starts.append(total)
            places = [float(total + place) for place in range(len(tokens))]
            sequences.append(TokenSequence(tokens, {"place": places}))
            total += len(tokens)
        weight = self.model.embedding.weight
        states_ND, logprobs_N = (torch.zeros(total, *more, dtype=weight.dtype) for more in (weight.shape[1:], ()))
        room = self.row_length(sequences, capacity)
        for batch in split_rows(make_batch(sequences, room), ROWS) if sequences else ():
            there = batch.to(weight.device)
            found = run_model(self.model, there)
            picked = Picked(there)
            at = picked.pick(there.streams["place"]).long().cpu()
            states_ND[at] = picked.pick(found).to(weight.dtype).cpu()
            logprobs_N[at] = score_states(self.model, found, there, temperature).logprobs.to(weight.dtype).cpu()
        return states_ND, logprobs_N, starts

    def row_length(self, sequences: Sequence[TokenSequence], capacity: int) -> int:
        """The length of a row: its own tokens may be more than the student's."""
        longest = max((len(each.tokens) for each in sequences), default=0)
        if self.respeller is not None and longest > self.model.config.context:
            raise CheckFailed(
                f"a conversation has {longest} tokens of the teacher {self.name}, whose context is {self.model.config.context}",
                place="distill",
                fix="shorten the conversations: lower max_new_tokens or sequence_length",
            )
        return max(capacity, longest)


class LocalTeacher(Teacher):
    """A checkpoint in this process."""

    def __init__(self, name: str, model: Transformer, respeller: Respeller | None) -> None:
        super().__init__(name, respeller)
        self._model = model.eval().requires_grad_(requires_grad=False)

    @property
    def model(self) -> Transformer:
        return self._model

    def logprobs(
        self, sequences: Sequence[TokenSequence], capacity: int, temperature: float, processes: Processes
    ) -> list[list[float]]:
        return sequence_logprobs(self._model, sequences, self.row_length(sequences, capacity), temperature, processes)

    def with_likeliest(
        self,
        sequences: Sequence[TokenSequence],
        k: int,
        capacity: int,
        temperature: float,
        processes: Processes,
        folder: StageFolder | None = None,
    ) -> list[TokenSequence]:
        return with_likeliest(self._model, sequences, k, capacity, temperature, processes, folder)


def shared_vocabulary(student: Transformer, teacher: Teacher) -> Shared:
    """The tokens that mean the same to both."""
    sizes = [model.head_weight_VD.shape[0] for model in (student, teacher.model)]
    if teacher.respeller is None:
        return Shared.whole(sizes[0])
    return Shared.of(teacher.respeller.shared(), *sizes)
