"""Options of the `synthesize` stage: documents from documents (data/synthesize), and conversations from environments."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from ingot.data.synthesize.config import AnyTask, DocumentsConfig
from ingot.envs.environment import Environment
from ingot.envs.rollout.external import LedEnvironment
from ingot.post.synthesis.maker import ENVIRONMENTS
from ingot.workspace.config import Config


class EnvironmentConfig(Config):
    """Attempts of the writer at train tasks of an environment; those that earn enough become conversations."""

    environment: Annotated[Environment, ENVIRONMENTS] = Field(
        description="a task kind or maker: a name, file.py:Name, or {task: NAME or file.py:Name} with its options"
    )
    count: int = Field(512, ge=1, description="train tasks; fewer where there are not so many different ones")
    samples: int = Field(4, ge=1, description="attempts at each task")
    again: int = Field(
        0,
        ge=0,
        description="rounds of as many new attempts at the tasks of which nothing was kept: cut or wrong answers",
    )
    min_reward: float = Field(1.0, description="an attempt is kept if it earns at least this")
    most_kept: int | None = Field(
        None, ge=1, description="kept attempts of one task at most (null: all); equal ones are kept once"
    )
    cut_thoughts: int | None = Field(
        None,
        ge=1,
        description="keep only attempts that think for more tokens than this, cut there and closed, whatever they earn: what "
        "`sft` with `learn: [</think>]` learns to stop from (Hermes 4: 30000)",
    )
    max_turns: int = Field(8, ge=1, description="turns of the writer in an attempt at most")
    max_length: int = Field(4096, ge=2, description="tokens of a checkpoint's attempt with its prompt at most")

    @model_validator(mode="after")
    def _one_prompt(self) -> Self:
        if isinstance(self.environment, LedEnvironment):  # its prompts and tools are not the task's
            problem = f"the task kind {self.environment.kind} leads its episodes: they do not follow the task's prompt"
            raise ValueError(f"{problem}; train on it by rl or distill")
        return self


class SynthesizeConfig(DocumentsConfig):
    """Documents from documents, and conversations from environments, each with where it came from."""

    tasks: list[AnyTask] = Field(default=[], description="documents that are made from documents, in order")
    environments: list[EnvironmentConfig] = Field(
        default=[], description="environments whose tasks are attempted, in order"
    )

    def outside(self) -> dict[str, str]:
        """The files of the environments."""
        return {name: found for each in self.environments for name, found in each.environment.outside().items()}

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not self.tasks and not self.environments:
            raise ValueError("give `tasks` (documents) or `environments` (conversations)")
        names = [each.environment.kind for each in self.environments]
        if len(set(names)) < len(names):
            raise ValueError("two environments have the same short name; give one class another name")
        if any(each.samples > 1 or each.again for each in self.environments) and self.temperature == 0:
            raise ValueError("several samples of a task need a temperature above 0: greedy ones are all the same")
        given = self.chosen("endpoint", "temperature", "top_p", "max_tokens")
        if given and not self.environments and not self.needs_writer:
            raise ValueError(f"{', '.join(given)}: these tasks ask no model; leave it out")
        if self.temperature == 0 and self.chosen("top_p"):
            raise ValueError("top_p: greedy answers are not drawn; give a temperature above 0, or leave it out")
        for number, each in enumerate(self.environments):
            if self.endpoint is not None and each.chosen("max_length"):
                problem = f"environments.{number}.max_length: the tokens of a server's attempt are not counted here"
                raise ValueError(f"{problem}; leave it out, max_tokens limits its turns")
        return self
