"""Names the judge of a suite or of an environment in a recipe.

judge: {url: http://127.0.0.1:8000/v1, model: NAME}     a server with OpenAI's API
judge: {checkpoint: FOLDER}                             a model of ours, in this process
judge: mine.py:Mine                                     a class of the user's own; with options {kind: mine.py:Mine, …}

class Mine(JudgeConfig):
    def open(self, max_tokens): return self             # anything with `ask`
    def ask(self, messages, schema=None): return "…"
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, ValidationInfo

from ingot.data.synthesize.config import EndpointConfig
from ingot.envs.verifiers.judges.judge import Judge
from ingot.workspace.errors import ArtifactError
from ingot.workspace.kinds import Part, Parts
from ingot.workspace.runs import find_stage

CPU_PAGE = 4  # tokens: a CPU copies short pages nearly as fast as long ones


class JudgeConfig(Part):
    """The options of a judge."""

    here: ClassVar[bool] = False  # whether it keeps this process busy, so that it works when the engine does not

    @property
    def label(self) -> str:
        """Its name in the labels of scores."""
        return self.short_name

    @property
    def at_once(self) -> int:
        """How many questions it takes at the same time."""
        return 1

    @abstractmethod
    def open(self, max_tokens: int) -> Judge:
        """The judge, which writes so many tokens at most."""


class EndpointJudgeConfig(EndpointConfig, JudgeConfig):
    """A model behind a server with OpenAI's chat completions API as the judge."""

    kind: Literal["endpoint"] = Field("endpoint", description="which judge this is; need not be written")

    @property
    def label(self) -> str:
        return self.model

    @property
    def at_once(self) -> int:
        return self.concurrency

    def open(self, max_tokens: int) -> Judge:
        from ingot.envs.verifiers.judges.endpoint import EndpointJudge

        return EndpointJudge(self, max_tokens=max_tokens)


class CheckpointJudgeConfig(JudgeConfig):
    """A model of ours as the judge, in this process."""

    here: ClassVar[bool] = True
    kind: Literal["checkpoint"] = Field("checkpoint", description="which judge this is; need not be written")
    checkpoint: str = Field(description="checkpoint, stage or Hugging Face folder, or a GGUF file")
    max_tokens: int = Field(4096, ge=1, description="tokens of a judgement with its prompt")

    @property
    def label(self) -> str:
        return self.checkpoint

    def open(self, max_tokens: int) -> Judge:
        from ingot.envs.verifiers.judges.policy import PolicyJudge
        from ingot.inference.engine import Engine
        from ingot.inference.load import load_to_sample
        from ingot.model.mixers.cache import PAGE
        from ingot.tokens.chat import ChatFormat

        model = load_to_sample(find_stage(Path(self.checkpoint)))
        if model.tokenizer is None:
            fix = "give a checkpoint that a training stage made"
            raise ArtifactError("the checkpoint has no tokenizer", place=self.checkpoint, fix=fix)
        page = CPU_PAGE if model.embedding.weight.device.type == "cpu" else PAGE
        engine = Engine(model, slots=1, length=self.max_tokens, page=page)
        return PolicyJudge(engine, ChatFormat(model.tokenizer), max_tokens=max_tokens)


class Judges(Parts[JudgeConfig]):
    """Reads an entry that names no kind by the keys that it has."""

    def read(self, value: Any, info: ValidationInfo | None = None) -> JudgeConfig:
        if isinstance(value, Mapping) and self.base.key not in value:
            value = {self.base.key: "checkpoint" if "checkpoint" in value else "endpoint", **value}
        return super().read(value, info)


JUDGES = Judges(JudgeConfig, "judge", (EndpointJudgeConfig, CheckpointJudgeConfig))  # type: ignore[type-abstract]
