"""Options of the stage `prefer`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from ingot.data.synthesize.config import EndpointConfig
from ingot.envs.config import TaskMixConfig
from ingot.envs.tools.find import ToolName
from ingot.post.algorithm import PREFER, PairAlgorithm
from ingot.post.passes_config import PassesConfig
from ingot.workspace.config import Config
from ingot.workspace.files import fingerprint
from ingot.workspace.hub import is_hub_name

OWN_GAP = 100  # tokens; as Olmo 3 caps its chat pairs


class AnswererConfig(Config):
    """A model that answers prompts."""

    model: str = Field("", description="a checkpoint, a Hugging Face folder or a GGUF file")
    endpoint: EndpointConfig | None = Field(None, description="a server with OpenAI's API instead")

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if bool(self.model) == (self.endpoint is not None):
            raise ValueError("give either `model` (a path) or `endpoint` (a server)")
        if is_hub_name(Path(self.model)) and not Path(self.model).exists():
            raise ValueError(
                f"model: no such path; a model of the hub is an input: inputs: {{strong: {self.model}, weak: …}}"
            )
        return self


class PairsConfig(Config):
    """Where pairs come from: files, two other models, or (if neither is given) the model's own answers to `tasks`.

    Stages of the recipe can be the two models: inputs: {strong: STAGE, weak: STAGE}.
    """

    files: tuple[str, ...] = Field((), description="files of pairs or of rated answers: JSONL, .jsonl.gz or Parquet")
    too_long: Literal["error", "leave_out"] = Field(
        "error", description="what happens to a row of a file that does not fit into sequence_length"
    )
    strong: AnswererConfig | None = Field(None, description="its answers are chosen, those of `weak` rejected")
    weak: AnswererConfig | None = Field(None, description="its answers are rejected, those of `strong` chosen")
    prompt_files: tuple[str, ...] = Field(
        (), description="JSONL files of prompts that `strong` and `weak` answer, instead of the stage's `tasks`"
    )
    choose: Literal["right_wrong", "best_worst"] = Field(
        "right_wrong", description="which of the model's own answers are paired: reward 1 and 0, or highest and lowest"
    )
    refresh: int | None = Field(
        None, ge=1, description="sample new answers of the current policy every so many steps; null: once, at first"
    )

    @property
    def own(self) -> bool:
        """Whether they are answers of the model that is trained."""
        return not self.files and self.strong is None

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if (self.strong is None) != (self.weak is None):
            raise ValueError("pairs of two models need both `strong` and `weak`")
        if self.files and self.strong is not None:
            raise ValueError("pairs come either from `files` or from `strong` and `weak`")
        if self.refresh is not None and not self.own:
            raise ValueError("`refresh` samples the model's own answers; leave `files`, `strong` and `weak` out")
        return self


class PreferConfig(PassesConfig):
    """Preferences on pairs of answers: people's own, those of two models, or the model's own."""

    moved: ClassVar[Mapping[str, str]] = {
        key: f"algorithm: {{algorithm: dpo, {key}: ...}}" for key in ("beta", "length_normalised", "anchor")
    }

    pairs: PairsConfig = Field(PairsConfig(), description="where the pairs come from")
    tasks: TaskMixConfig = Field(TaskMixConfig(), description="the tasks that are answered")
    tools: tuple[ToolName, ...] = Field(
        (), description="tools that are offered beside a task's own: names, or file.py:function"
    )
    prompts: int = Field(128, gt=0, description="tasks that are sampled to find pairs (with `refresh`: each time)")
    samples: int = Field(8, gt=1, description="answers to each task")
    temperature: float = Field(1.0, gt=0, description="sampling temperature for the answers")
    max_new_tokens: int = Field(64, gt=0, description="longest turn")
    length_gap: int | None = Field(
        None,
        ge=0,
        description="largest difference in tokens between the two answers of a pair; null: "
        f"{OWN_GAP} for the model's own answers, any for others",
    )
    pairs_per_task: int = Field(2, gt=0, description="at most this many pairs from one task")
    batch_pairs: int = Field(16, gt=0, description="pairs (of rated answers: answers) in one optimizer step")
    algorithm: Annotated[PairAlgorithm, PREFER] = Field(  # type: ignore[assignment]  # read by its name
        "dpo", description="what is learnt from the pairs"
    )

    divides_rows: ClassVar[bool] = False  # preferences are of whole answers

    @property
    def step_tokens(self) -> int:
        """A row for each answer at the most."""
        return (2 if self.algorithm.paired else 1) * self.batch_pairs * self.sequence_length

    @property
    def longest_gap(self) -> int | None:
        """The cap on lengths that is in force."""
        return OWN_GAP if self.length_gap is None and self.pairs.own else self.length_gap

    def outside(self) -> dict[str, str]:
        """The files of its tasks, pairs and answering models; one that is not there is an error when the stage reads it."""
        models = [each.model for each in (self.pairs.strong, self.pairs.weak) if each is not None and each.model]
        files = [found for name in models for found in (Path(name), *sorted(Path(name).rglob("*")))]
        files += map(Path, (*self.pairs.files, *self.pairs.prompt_files))
        return self.tasks.outside() | {str(path): fingerprint(path) for path in files if path.is_file()}

    def unfit(self, inputs: Collection[str]) -> Iterator[str]:
        """The strong and the weak model may be inputs."""
        pairs, one_by_one = self.pairs, f"{self.algorithm.algorithm} takes each answer by itself"
        if pairs.files:
            reason = "the answers are those of `pairs.files`"
            options = "tasks", "tools", "prompts", "samples", "pairs_per_task", "temperature", "max_new_tokens"
            yield from self.unread(*options, because=reason)
            yield from pairs.unread("choose", because=reason, at="pairs.")
        elif pairs.strong is not None or {"strong", "weak"} & {*inputs}:
            reason = "each of the two models answers a prompt once"
            yield from self.unread("samples", "pairs_per_task", because=reason)
            yield from pairs.unread("choose", because=reason, at="pairs.")
            if pairs.prompt_files:
                yield from self.unread("tasks", "prompts", because="the prompts are those of `pairs.prompt_files`")
        elif not self.algorithm.paired:
            yield from self.unread("pairs_per_task", because=one_by_one)
            yield from pairs.unread("choose", because=one_by_one, at="pairs.")
        if not self.algorithm.paired:
            yield from self.unread("length_gap", because=one_by_one)
        if not pairs.files:
            yield from pairs.unread("too_long", because="there are no `pairs.files`", at="pairs.")

    @model_validator(mode="after")
    def _possible(self) -> PreferConfig:
        if self.pairs.refresh is not None and self.epochs is not None:
            raise ValueError(
                "epochs: with pairs.refresh there are always new pairs, and no passes over them; give `steps`"
            )
        if self.mesh.context > 1:
            raise ValueError("mesh.context: preferences compare whole answers, which it would divide; set it to 1")
        if not self.algorithm.paired and (self.pairs.strong is not None or self.pairs.refresh is not None):
            raise ValueError(
                f"algorithm: {self.algorithm.algorithm} takes single answers; give them in `pairs.files`, or leave out "
                "`strong`, `weak` and `refresh`"
            )
        return self
