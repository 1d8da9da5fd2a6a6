"""Hold the options of the stage `distill`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from ingot.data.synthesize.config import EndpointConfig
from ingot.post.algorithm import DISTILL, DistillAlgorithm, DivergenceAlgorithm
from ingot.post.rl.sampling_config import OF_SAMPLES, SamplingConfig
from ingot.workspace.errors import RecipeError
from ingot.workspace.files import fingerprint

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "chat_format.yaml")


class TeacherEndpointConfig(EndpointConfig):
    """A teacher on a server with OpenAI's completions API that scores the token ids of a prompt: `ingot serve`, or vLLM."""

    tokenizer: str | None = Field(
        None,
        description="folder with the tokenizer and the chat template of the server's model; null: it has the student's tokenizer",
    )


class DistillConfig(SamplingConfig):
    """Distillation: a teacher grades every token of the student's own samples, or of given conversations."""

    algorithm: Annotated[DistillAlgorithm, DISTILL] = Field(  # type: ignore[assignment]  # read by its name
        "reverse_kl", description="what is learnt from the teacher"
    )
    on_policy: float = Field(
        1.0,
        ge=0,
        le=1,
        description="chance that the answers of a step are the student's own samples, not conversations of `files` or of an "
        "earlier synthesize stage (λ of GKD)",
    )
    files: tuple[str, ...] = Field(
        (), description="JSONL files of conversations, as those of an sft stage, for steps that are not on-policy"
    )
    teachers: dict[str, tuple[str, ...]] = Field(
        {},
        description="several teachers: the kinds of tasks that each of them grades, by its name in inputs: "
        "{teacher: {NAME: STAGE}}",
    )

    endpoints: dict[str, TeacherEndpointConfig] = Field(
        {},
        description="teachers on servers by name, beside or in place of those in inputs; reverse_kl and top_k learn from them",
    )

    @model_validator(mode="after")
    def _servers_can_answer(self) -> DistillConfig:
        if not self.endpoints or not isinstance(self.algorithm, DivergenceAlgorithm):
            return self
        name = self.algorithm.algorithm
        if self.algorithm.likeliest is None:
            raise ValueError(
                f"endpoints: {name} compares whole distributions, which no server gives: use top_k or reverse_kl"
            )
        if self.temperature != 1.0:
            raise ValueError("endpoints: a server gives probabilities at temperature 1; leave temperature at 1")
        if any(each.tokenizer is not None for each in self.endpoints.values()):
            raise ValueError(f"endpoints: {name} compares token by token; with another tokenizer use reverse_kl")
        return self

    @model_validator(mode="after")
    def _reads_its_tasks(self) -> DistillConfig:
        if self.on_policy == 0:
            self.refuse(*OF_SAMPLES, because="with on_policy: 0 nothing is sampled")
        elif self.on_policy < 1 and "tasks" not in self.model_fields_set:
            raise ValueError(
                "tasks: there are conversations of one's own: say on which tasks the student samples beside them"
            )
        return self

    def supplies(self) -> frozenset[str]:
        """A server stands in for the input teacher."""
        return frozenset({"teacher"} if self.endpoints else ())

    @model_validator(mode="after")
    def _fits_its_algorithm(self) -> DistillConfig:
        compares = isinstance(self.algorithm, DivergenceAlgorithm)
        if self.temperature != 1.0 and not compares:
            raise ValueError(
                f"{self.algorithm.algorithm} compares log-probabilities at temperature 1; leave temperature at 1"
            )
        if self.on_policy < 1 and not compares:
            raise ValueError(f"{self.algorithm.algorithm} learns from the student's own samples; leave on_policy at 1")
        if self.files and self.on_policy == 1:
            raise ValueError("files: no step would read them; set on_policy below 1")
        if self.teachers and self.on_policy < 1:
            raise ValueError("teachers: given conversations have no task that says which teacher grades them")
        graded = [kind for kinds in self.teachers.values() for kind in kinds]
        if self.teachers and sorted(graded) != sorted(self.tasks.weights):
            raise ValueError(
                f"teachers: each of {', '.join(self.tasks.weights)} needs exactly one teacher; they have {', '.join(graded)}"
            )
        return self

    def teacher_of(self, kind: str) -> str:
        """The name of the teacher that grades tasks of a kind, by its short name."""
        return next(
            name for name, kinds in self.teachers.items() for written in kinds if self.tasks.kind(written).kind == kind
        )

    def check_teachers(self, names: Sequence[str]) -> None:
        """Fail unless the inputs and endpoints are the teachers that the options speak of."""
        if not names or len(set(names)) < len(names):
            raise RecipeError(
                "there is no teacher" if not names else f"two teachers have one name: {', '.join(sorted(names))}",
                place="distill",
                fix="give each a name of its own: inputs: {teacher: {NAME: STAGE}}, endpoints: {NAME: {url: URL, model: MODEL}}",
            )
        if (len(names) > 1 or self.teachers) and sorted(names) != sorted(self.teachers):
            raise RecipeError(
                f"the inputs have the teachers {', '.join(names)}; `teachers` has {', '.join(self.teachers) or 'none'}",
                place="teachers",
                fix="name the kinds of tasks of each: teachers: {NAME: [KIND, ...]}, inputs: {teacher: {NAME: STAGE}}",
            )

    def outside(self) -> dict[str, str]:
        """The files of its tasks, those of conversations, and the tokenizers of servers."""
        folders = [Path(each.tokenizer) for each in self.endpoints.values() if each.tokenizer is not None]
        named = [*map(Path, self.files), *(folder / name for folder in folders for name in TOKENIZER_FILES)]
        return super().outside() | {str(path): fingerprint(path) for path in named if path.is_file()}
