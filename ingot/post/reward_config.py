"""Options of the stage `reward`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from ingot.post.algorithm import REWARD, RewardAlgorithm
from ingot.post.passes_config import PassesConfig
from ingot.workspace.files import fingerprint


class RewardConfig(PassesConfig):
    """A reward model: one linear row on the last hidden state, read at the last token of an answer."""

    files: tuple[str, ...] = Field(
        min_length=1,
        description="files of pairs, as a prefer stage reads them, a row also with `margin`; for algorithm: regression rows of "
        "{prompt, completion, score}",
    )
    too_long: Literal["error", "leave_out"] = Field(
        "error", description="what happens to a row that does not fit into sequence_length"
    )
    batch_answers: int = Field(16, gt=0, description="pairs, or scored answers, in one optimizer step")
    held_out: int = Field(
        0, ge=0, description="rows that are kept from training, the last ones of the files, to measure the result with"
    )
    algorithm: Annotated[RewardAlgorithm, REWARD] = Field(  # type: ignore[assignment]  # read by its name
        "bradley_terry", description="what is learnt from the answers"
    )

    @property
    def step_tokens(self) -> int:
        """A row for each answer at the most."""
        return (2 if self.algorithm.paired else 1) * self.batch_answers * self.sequence_length

    def outside(self) -> dict[str, str]:
        """The files of answers; one that is not there is an error when the stage reads it."""
        return {name: fingerprint(Path(name)) for name in self.files if Path(name).is_file()}
