"""Options for making documents from documents: which from which, and what writes them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Annotated

from pydantic import Field

from ingot.data.synthesize.task import SYNTHESIS_TASKS, SynthesisTask
from ingot.workspace.config import Config


class EndpointConfig(Config):
    """A server with OpenAI's chat completions API."""

    url: str = Field(description="address up to and including the version, as in http://127.0.0.1:8000/v1")
    model: str = Field(description="name of the model there")
    api_key_variable: str | None = Field(
        default=None, description="environment variable that holds the key; the key itself never stands in a recipe"
    )
    concurrency: int = Field(default=16, ge=1, le=1024, description="requests on their way at the same time")
    timeout_seconds: float = Field(default=120, gt=0, description="a request that takes longer has failed")
    attempts: int = Field(
        default=5, ge=1, description="tries of a request that meets a full queue (429), a server error or no answer"
    )


AnyTask = Annotated[SynthesisTask, SYNTHESIS_TASKS]


class DocumentsConfig(Config):
    """Documents from documents: rephrased, translated, asked about, each with its lineage."""

    tasks: list[AnyTask] = Field(min_length=1, description="what is made, in order")
    endpoint: EndpointConfig | None = Field(
        default=None, description="what writes; null: the checkpoint that the stage is given as input"
    )
    temperature: float = Field(default=0.8, ge=0, description="of sampling")
    top_p: float = Field(default=0.95, gt=0, le=1, description="of sampling")
    max_tokens: int = Field(default=1024, ge=1, description="most tokens of an answer")
    keep_documents: bool = Field(default=True, description="the result holds the given documents too, before the new")

    def supplies(self) -> frozenset[str]:
        """A server writes instead of a checkpoint."""
        return frozenset() if self.endpoint is None else frozenset({"checkpoint"})

    def unfit(self, inputs: Collection[str]) -> Iterator[str]:
        """One of them writes."""
        if self.endpoint is not None and "checkpoint" in inputs:
            yield "endpoint: the server is asked, not the checkpoint in inputs: leave one of them out"

    @property
    def needs_writer(self) -> bool:
        """Whether any task asks a model."""
        return any(task.asks for task in self.tasks)
