"""The work of the stage `OwnLoss`: batches of the user's through a loss of the user's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import OutOfMemoryError, Tensor

from ingot.envs.rows import read_rows
from ingot.model.transformer import Transformer
from ingot.post.data.conversations.conversation_file import Rendered, RowReading, render_row
from ingot.post.own_loss import OwnLossConfig
from ingot.post.policy import chat_format
from ingot.post.processes import begin
from ingot.tokens.batch import Batch, TokenSequence
from ingot.tokens.chat import ChatFormat
from ingot.tokens.packing import make_batch
from ingot.train.batches import deal, split_rows
from ingot.train.loop import Trainer
from ingot.train.losses.terms import Distributions, LossTerm, Scored
from ingot.train.source import Source
from ingot.workspace.errors import CheckFailed, DataError
from ingot.workspace.outside import is_outside, load_outside, raised_at
from ingot.workspace.stage import StageFolder

WEIGHT = "weight"


@dataclass(frozen=True)
class OwnTerm(LossTerm):
    """Σ_t weight_t · loss_t, with the user's loss of each token."""

    function: Callable[[Distributions], Any]
    place: str
    name: str = "own"
    coefficient: float = 1.0
    needs: tuple[str, ...] = (WEIGHT,)

    def denominator(self, streams: Mapping[str, Tensor]) -> Tensor:
        return streams[WEIGHT].sum()

    def numerator(self, scored: Scored) -> tuple[Tensor, dict[str, Tensor]]:
        weight = scored.streams[WEIGHT]
        return (weight * scored.measured[self.name]).sum(), {
            "cross_entropy": -(weight * scored.logprobs.detach()).sum()
        }

    def measure(self, tokens: Distributions) -> dict[str, Tensor]:
        try:
            values = self.function(tokens)
        except OutOfMemoryError:  # of the device: not a mistake in the code
            raise
        except Exception as error:
            problem, fix = (
                f"the loss raised {type(error).__name__}: {error}",
                "mend it; the same call goes on from here",
            )
            raise CheckFailed(problem, place=raised_at(error, self.place), fix=fix) from error
        if not isinstance(values, Tensor) or values.shape != tokens.targets.shape:
            found = f"shape {tuple(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
            fix = "return one number for each token: they are weighted and averaged over the whole step"
            raise CheckFailed(f"the loss of {len(tokens.targets)} tokens has {found}", place=self.place, fix=fix)
        if tokens.logits.requires_grad and not values.requires_grad:
            fix = "compute it from tokens.logits by torch, without detach, item, numpy or no_grad"
            raise CheckFailed("the loss has no gradient: it does not depend on the model", place=self.place, fix=fix)
        return {self.name: values.float()}


class OwnBatches(Source):
    """The batches of a function of the step, or of a file in turn."""

    def __init__(self, config: OwnLossConfig, model: Transformer) -> None:
        self.config, self.model = config, model
        self.rows = max(1, config.micro_batch_tokens // config.sequence_length)
        own = is_outside(config.batches)
        self.function: Callable[[int], Sequence[Any]] | None = load_outside(config.batches) if own else None
        self.lines = [] if own else read_rows(config.batches)
        if not own and not self.lines:
            raise DataError(
                "there are no batches", place=config.batches, fix='write {"sequences": […]}, a batch a line'
            )

    @cached_property
    def chat(self) -> ChatFormat:
        """For rows that are conversations; token ids need none."""
        return chat_format(self.model)

    def batches(self, step: int, rank: int = 0, world: int = 1) -> tuple[Sequence[Batch], dict[str, float]]:
        if self.function is not None:
            place, rows = f"{self.config.batches}, step {step}", self.function(step)
        else:
            place, line = self.lines[step % len(self.lines)]
            rows = line.get("sequences", ())
        if not isinstance(rows, Sequence) or isinstance(rows, str) or not rows:
            raise DataError("a batch is a list of sequences", place=place, fix='give [{"text": "…"}, …]')
        sequences = [each for row in rows for each in self._sequences(row, place)]
        packed = make_batch(sequences, self.config.sequence_length)
        return deal(split_rows(packed, self.rows), rank, world), {}

    def _sequences(self, row: Any, place: str) -> list[TokenSequence]:
        if not isinstance(row, Mapping):
            fix = 'write {"text": "…"}, {"messages": […]} or {"tokens": […], "weight": […]}'
            raise DataError(f"a sequence is a {type(row).__name__}, not a mapping", place=place, fix=fix)
        if "tokens" not in row:
            reading = RowReading(longest=self.config.sequence_length + 1)  # the last token is only predicted
            made = render_row(place, row, self.chat, reading)
            return [sequence for each in made if isinstance(each, Rendered) for sequence in each.sequences]
        tokens = [int(token) for token in row["tokens"]]
        if wrong := [token for token in tokens if not 0 <= token < (self.model.config.vocabulary_size or 0)]:
            fix = f"the model's vocabulary has {self.model.config.vocabulary_size}"
            raise DataError(f"there is no token {wrong[0]}", place=place, fix=fix)
        streams = {name: [float(value) for value in values] for name, values in row.items() if name != "tokens"}
        for name, values in streams.items():
            if len(values) != len(tokens):
                problem = f"{name} has {len(values)} numbers for {len(tokens)} tokens"
                raise DataError(problem, place=place, fix="give one for each token; that of the first is never used")
        return [TokenSequence(tokens, {WEIGHT: [1.0] * len(tokens), **streams})]


def run(config: OwnLossConfig, inputs: Mapping[str, Path], folder: StageFolder) -> dict[str, Any]:
    """Train the input checkpoint; makes a checkpoint."""
    layout, model, fill = begin(config, inputs["checkpoint"], folder.seed)
    term = OwnTerm(load_outside(config.loss), config.loss)
    source = OwnBatches(config, model)
    last = Trainer(model, [term], source, config, folder, fill=fill, layout=layout).run()
    return {"loss": last["loss"], "tokens": last["tokens"]}
