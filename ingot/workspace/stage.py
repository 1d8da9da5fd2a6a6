"""Defines the base class of every kind of stage, and the folder that a stage works in.

A stage turns input artifacts into output artifacts: `run(config, inputs, folder)`. It reads only `inputs`, writes only
below `folder.path`, and may be killed at any moment: called again with the same arguments it must finish the work. The
recipe room composes stages; a stage knows nothing of recipes. The built-in kinds stand in the `stages.py` of their room and
recipe/stages.py lists them; a recipe names any other as `file.py:Name` or `package.module:Name`.

Artifact kinds and where they lie below a stage's folder (a stage that makes kind K writes it to `folder.path / K`):

    documents/    part-*.parquet: id, text, source, and one column per annotation
    tokenizer/    tokenizer.json, chat_template.jinja, checksums.json (of these), statistics.json
    shards/       token shards by source, index.json (see ingot/tokens/shards.py)
    checkpoint/   a complete checkpoint (see ingot/checkpoints/checkpoint.py)
    scores/       scores.json: {metric: {"value", "standard_error", "count"}}; samples.jsonl
    verdict/      verdict.json: which claims of the recipe held
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ingot.workspace.estimates import NOTHING, SamplerMemory, StageCost
from ingot.workspace.interrupt import StopSignal
from ingot.workspace.metrics import MetricsLog

if TYPE_CHECKING:
    from ingot.workspace.command import CommandOption, Preview, Results
    from ingot.workspace.config import Config
    from ingot.workspace.draft import Draft, DraftStage, StageProblem
    from ingot.workspace.progress import Progress

DONE = "DONE"
WARNING = "warning"  # in a summary: what is wrong with a stage that finished; the last line about it


@dataclass
class StageFolder:
    """The folder that a running stage writes to, and its progress display."""

    path: Path
    seed: int
    progress: Progress
    stop: StopSignal = field(default_factory=StopSignal)
    expected_tokens_per_second: float | None = None  # of a training stage, if it was estimated

    @property
    def metrics(self) -> MetricsLog:
        """The stage's metrics.jsonl."""
        return MetricsLog(self.path / "metrics.jsonl")

    def artifact(self, kind: str) -> Path:
        """The folder of this stage's artifact of `kind`."""
        return self.path / kind


def imported(path: str) -> Any:
    """An attribute of a class that is imported when it is first asked for: `module:name`.

    The commands list all stages without loading the code of any.
    """
    return _Imported(path)


class _Imported:
    def __init__(self, path: str) -> None:
        self.path = path

    def __get__(self, instance: object, owner: type) -> Any:
        if instance is None:
            return self
        module, name = self.path.split(":")
        return getattr(importlib.import_module(module), name)


class Stage(ABC):
    """A kind of stage; the first line of its docstring says what it does. `kind` is the name that recipes call it by.

    `needs` maps a role ("checkpoint", "teacher") to the kind of artifact that fills it. `optional` roles may stay empty; one that
    is not called as its artifact is filled only where a recipe names it. `many` roles take every earlier artifact of their kind,
    as a mapping by stage name; `several` take one, or a mapping of names to several.

    `version` is part of a stage's hash: raise it when the same config means other work, so that old results are not reused.
    """

    needs: ClassVar[Mapping[str, str]] = {}
    optional: tuple[str, ...] = ()
    many: tuple[str, ...] = ()
    several: tuple[str, ...] = ()
    makes: tuple[str, ...] = ()
    version: int = 1
    divides: bool = False  # its work is divided over the processes of torchrun; other kinds run in the first one alone
    resumes: bool = True  # it saves parts of its work and resumes from them; other kinds start again
    leaves: tuple[str, ...] = ()  # below its folder when it is finished; the report names what is missing
    config: type[Config] = imported("ingot.workspace.config:Config")
    """The class of its options."""
    command: tuple[str, ...] | None = ()
    """The words of its command if not its kind; None: it has no `ingot KIND FILE`."""
    command_options: tuple[CommandOption, ...] = ()
    dry_run_help: str = "Print what would run; write nothing."

    def __init__(self, kind: str) -> None:
        self.kind = kind

    @property
    def does(self) -> str:
        """What it does, in one sentence."""
        return (type(self).__doc__ or "").strip().split("\n")[0]

    @abstractmethod
    def run(self, config: Any, inputs: Mapping[str, Any], folder: StageFolder) -> dict[str, Any]:
        """Do the work with this config, the inputs by role and the folder.

        The summary that it returns is stored in DONE and shown in tables: small, JSON-like.
        """

    def model(self, config: Any, checkpoint: Any) -> Any:
        """The ModelConfig that it works on, given that of its input checkpoint; None where the recipe does not say it.

        A RecipeError says which option cannot act on that model: "option: problem".
        """
        return checkpoint

    def check(self, stage: DraftStage, draft: Draft) -> Iterable[StageProblem]:
        """What is wrong with a stage of this kind among those of its recipe, before anything runs. Its config is whole."""
        return ()

    def cost(self, config: Any) -> StageCost:
        """The work that it has."""
        return StageCost()

    def memory(
        self, config: Any, models: Mapping[str, Any], processes: int = 1, device: int | None = None
    ) -> SamplerMemory | None:
        """What each of the processes holds besides its training; None where that needs a model that is not known.

        `models` are ModelConfigs by role, `checkpoint` the one that it trains; `device` is the memory of its GPU, None for a CPU.
        """
        return NOTHING

    def dry_run(self, config: Any) -> Preview | None:
        """What `ingot KIND FILE --dry-run` prints; None: the stages that would run."""
        return None

    def examples(self, config: Any, inputs: Mapping[str, Any], folder: StageFolder, count: int) -> Iterable[str]:
        """The texts that a command option which `prints` asks for; made in a folder that is deleted afterwards."""
        raise NotImplementedError(f"{type(self).__name__} has an option that prints, and no examples")

    def results(self, folder: Path) -> Results | None:
        """What its command prints when it is done; None: what every command prints."""
        return None

    def panel(self, folder: Path) -> Mapping[str, Any]:
        """What the report shows of a stage's folder besides its summary and its curves, by heading: plain JSON.

        A list of mappings with the same keys becomes a table.
        """
        return {}
