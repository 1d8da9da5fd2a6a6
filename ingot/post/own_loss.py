"""Trains a checkpoint by a loss of the user's own on the user's own batches: `ingot.fit(model, batches, loss)`.

In a recipe it is the stage kind `ingot.post.own_loss:OwnLoss`:

    def loss(tokens):              # of a chunk of tokens: logits [c, vocabulary], targets [c], streams by name [c]
        p = tokens.logits.softmax(-1).gather(1, tokens.targets[:, None])[:, 0]
        return -((1 - p) ** 2) * p.log()

    loss of a step = Σ_t weight_t · loss_t / Σ_t weight_t

Each token is judged by itself, so that chunks, packing, micro-batches and processes cannot change the number (losses/terms.py).

A batch is a list of sequences: rows of any form that an `sft` stage reads, or {"tokens": […], "weight": […], further streams},
with a number for each token. It comes from a function of the step, so that a run resumes exactly, or from a file with a batch a
line, {"sequences": […]}, which are taken in turn.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator

from ingot.train.config import TrainingConfig
from ingot.train.stages import TrainingStage
from ingot.workspace.files import fingerprint
from ingot.workspace.functions import FunctionName
from ingot.workspace.outside import is_outside
from ingot.workspace.stage import imported

BATCHES = FunctionName("function of batches", "batches(step)")
LOSS = FunctionName("loss", "loss(tokens)")


class OwnLossConfig(TrainingConfig):
    """A loss of your own."""

    sequence_length: int = Field(1024, gt=1, description="positions in a packed row")
    batches: str = Field(description="file.py:batches, called with the step; or a JSONL file, a batch a line")
    loss: Annotated[str, LOSS] = Field(description="file.py:loss, called with the tokens of a batch")

    @field_validator("batches")
    @classmethod
    def _is_there(cls, name: str) -> str:
        return BATCHES.read(name) if is_outside(name) else name

    def outside(self) -> dict[str, str]:
        """The file of batches."""
        path = Path(self.batches)
        return {self.batches: fingerprint(path)} if path.is_file() else {}


class OwnLoss(TrainingStage):
    """Train a checkpoint by a loss of one's own."""

    config = OwnLossConfig
    run = imported("ingot.post.own_loss_training:run")
    divides = True
