"""The stage `distill`: pull a student towards a teacher, on its own samples or on given conversations.

The algorithm says what is compared (algorithms/reverse_kl.py, gkd.py, top_k.py), `on_policy` whose answers they are. With several
teachers each grades its own tasks: stages that specialise, each on one task, come together in one student (cross-stage
distillation, GLM-5, arXiv 2602.15763).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ingot.checkpoints.checkpoint import load_model
from ingot.model.transformer import Transformer
from ingot.post.algorithm import DivergenceAlgorithm
from ingot.post.conversation_file import file_conversations
from ingot.post.distill_source import DistillSource, GradedSamples
from ingot.post.likeliest import with_likeliest
from ingot.post.policy import chat_format
from ingot.post.sampling_config import DistillConfig
from ingot.post.stage import PostStage
from ingot.post.vocabularies import check_vocabularies
from ingot.tokens.batch import TokenSequence
from ingot.train.device import choose_device
from ingot.train.terms import LossTerm
from ingot.workspace.errors import RecipeError
from ingot.workspace.stage import StageFolder


class Distill(PostStage[DistillConfig]):
    """Answers of the student, or given ones, graded by frozen teachers."""

    def source(self) -> DistillSource:
        config, given = self.config, self._given()
        self.teachers = self._load_teachers()
        self.temperature = config.temperature
        if config.on_policy == 0:
            given = self._without_teacher(given)
            return DistillSource(config, self.folder.seed, self.processes, self.teachers, None, given)
        whole = self.processes.whole(self.model, self.inputs["checkpoint"])
        samples = GradedSamples(self.model, config, self.folder, self.processes, whole, self.teachers)
        self.after_step = samples.check_ratio
        return DistillSource(config, self.folder.seed, self.processes, self.teachers, samples, given)

    def terms(self) -> list[LossTerm]:
        algorithm = self.config.algorithm
        if isinstance(algorithm, DivergenceAlgorithm):
            return [algorithm.divergence({name: teacher.head for name, teacher in self.teachers.items()})]
        return super().terms()

    def _load_teachers(self) -> dict[str, Transformer]:
        """The teachers by name; a single one has no name of its own."""
        named: Any = self.inputs["teacher"]
        paths: Mapping[str, Path] = named if isinstance(named, Mapping) else {"teacher": named}
        self.config.check_teachers(list(paths))
        teachers = {}
        for name, path in paths.items():
            teacher = load_model(path, device=choose_device(self.config.device))
            check_vocabularies(self.model, teacher, str(path))
            teachers[name] = teacher.eval().requires_grad_(requires_grad=False)
        return teachers

    def _given(self) -> list[TokenSequence]:
        """The conversations of files and of an earlier `synthesize` stage, to be compared where the assistant writes."""
        if self.config.on_policy == 1:
            return []
        made = sorted(self.inputs["conversations"].glob("*.jsonl")) if "conversations" in self.inputs else []
        files = [*map(Path, self.config.files), *made]
        chat, longest = chat_format(self.model), self.config.sequence_length + 1
        found = [each for path in files for each in file_conversations(path, chat, longest)]
        if not found:
            raise RecipeError(
                f"on_policy is {self.config.on_policy:g}, and there are no conversations to learn from besides samples",
                place="distill",
                fix="give `files`, or a `synthesize` stage before it; or leave on_policy at 1",
            )
        return [as_given(each) for each in found]

    def _without_teacher(self, given: list[TokenSequence]) -> list[TokenSequence]:
        """Ask the teacher for its likeliest tokens once for all, and let it go: fixed texts have fixed answers."""
        algorithm = self.config.algorithm
        if not isinstance(algorithm, DivergenceAlgorithm) or algorithm.likeliest is None:
            return given
        self.folder.progress.say(f"asking the teacher about {len(given)} conversations, once for all steps")
        (teacher,) = self.teachers.values()
        self.teachers = {}
        sizes = algorithm.likeliest, self.config.sequence_length, self.config.temperature
        return with_likeliest(teacher, given, *sizes, self.processes, self.folder)

    def summary(self, last: dict[str, Any]) -> dict[str, Any]:
        names = "first_divergence", "last_divergence"
        return dict(zip(names, self.first_and_last("teacher_divergence"), strict=True))


def as_given(conversation: TokenSequence) -> TokenSequence:
    """A conversation with the streams of a sampled one: nobody drew its tokens, so they have no sampling probability."""
    streams = {
        "response_mask": list(conversation.streams["weight"]),
        "sampled_logprob": [0.0] * len(conversation.tokens),
    }
    return TokenSequence(conversation.tokens, streams)


def run(config: DistillConfig, inputs: Mapping[str, Path], folder: StageFolder) -> dict[str, Any]:
    """Pull the input checkpoint towards its teachers; makes a checkpoint."""
    return Distill(config, inputs, folder).run()
