"""The stage `distill`: pull a student towards a teacher, on its own samples or on given conversations.

The algorithm says what is compared (algorithms/reverse_kl.py, gkd.py, top_k.py, gold.py), `on_policy` whose answers they are. A
teacher is a checkpoint in this process, or a model on a server. With several each grades its own tasks: stages that specialise,
each on one task, come together in one student (cross-stage distillation, GLM-5, arXiv 2602.15763).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ingot.checkpoints.checkpoint import load_model
from ingot.post.algorithm import AcrossAlgorithm, DivergenceAlgorithm
from ingot.post.data.conversations.conversation_file import rendered_conversations
from ingot.post.distill.config import DistillConfig, TeacherEndpointConfig
from ingot.post.distill.remote_teacher import RemoteTeacher
from ingot.post.distill.source import DistillSource, StudentSamples
from ingot.post.distill.teacher import LocalTeacher, Teacher, shared_vocabulary
from ingot.post.distill.teacher_view import Dialogue, conversation_dialogue
from ingot.post.distill.vocabularies import vocabulary_difference
from ingot.post.policy import chat_format
from ingot.post.stage import PostStage
from ingot.tokens.batch import TokenSequence
from ingot.tokens.chat import ChatFormat
from ingot.tokens.respell import Respeller
from ingot.tokens.tokenizer import Tokenizer
from ingot.train.device import choose_device, choose_frozen_precision, choose_sampling_precision, stored_dtype
from ingot.train.losses.terms import LossTerm
from ingot.workspace.errors import RecipeError
from ingot.workspace.stage import StageFolder


class Distill(PostStage[DistillConfig]):
    """Answers of the student, or given ones, graded by frozen teachers."""

    def source(self) -> DistillSource:
        config = self.config
        self.temperature = config.temperature
        self.teachers = self._find_teachers()
        given, dialogues = self._given()
        if config.on_policy == 0:
            given = self._without_teacher(given)
            return DistillSource(config, self.folder.seed, self.processes, self.teachers, None, given, dialogues)
        dtype = stored_dtype(choose_sampling_precision(config.sampling_precision, choose_device(config.device)))
        whole = self.processes.whole(self.model, self.inputs["checkpoint"], dtype=dtype)
        samples = StudentSamples(self.model, config, self.folder, self.processes, whole, self.teachers)
        self.after_step = samples.check_ratio
        return DistillSource(config, self.folder.seed, self.processes, self.teachers, samples, given, dialogues)

    def terms(self) -> list[LossTerm]:
        algorithm = self.config.algorithm
        if not isinstance(algorithm, DivergenceAlgorithm):
            return super().terms()
        if algorithm.likeliest is not None:
            return [algorithm.divergence({})]
        heads = {name: teacher.model.head for name, teacher in self.teachers.items()}
        if not isinstance(algorithm, AcrossAlgorithm):
            return [algorithm.divergence(heads)]
        device = choose_device(self.config.device)
        shared = {name: shared_vocabulary(self.model, each).to(device) for name, each in self.teachers.items()}
        for name, one in shared.items():
            self.folder.progress.say(f"{one.share:.1%} of the vocabulary of {name} is the student's too")
        return [algorithm.compare(heads, shared)]

    def _find_teachers(self) -> dict[str, Teacher]:
        """The teachers by name; a single one has no name of its own."""
        named: Any = self.inputs.get("teacher", {})
        paths: Mapping[str, Path] = named if isinstance(named, Mapping) else {"teacher": named}
        self.config.check_teachers([*paths, *self.config.endpoints])
        teachers: dict[str, Teacher] = {name: self._load_teacher(name, path) for name, path in paths.items()}
        return teachers | {name: self._reach_teacher(name, each) for name, each in self.config.endpoints.items()}

    def _load_teacher(self, name: str, path: Path) -> LocalTeacher:
        device = choose_device(self.config.device)
        teacher = load_model(path, device=device, dtype=choose_frozen_precision(self.config.precision, device))
        problem = vocabulary_difference(self.model, teacher)
        if problem is None:
            return LocalTeacher(name, teacher, None)
        algorithm = self.config.algorithm
        if isinstance(algorithm, DivergenceAlgorithm) and not isinstance(algorithm, AcrossAlgorithm):
            raise RecipeError(
                f"{problem}, and {algorithm.algorithm} compares token by token",
                place=str(path),
                fix="use algorithm: gold or reverse_kl, or a teacher with the student's tokenizer",
            )
        return LocalTeacher(name, teacher, Respeller(chat_format(self.model), chat_format(teacher)))

    def _reach_teacher(self, name: str, config: TeacherEndpointConfig) -> RemoteTeacher:
        chat = chat_format(self.model)
        respeller = None
        if config.tokenizer is not None:
            respeller = Respeller(chat, ChatFormat(Tokenizer.load(Path(config.tokenizer))))
        tokenizer = chat.tokenizer if respeller is None else respeller.other.tokenizer
        teacher = RemoteTeacher(name, config, tokenizer, respeller)
        self.processes.once(teacher.check)
        return teacher

    def _given(self) -> tuple[list[TokenSequence], list[Dialogue]]:
        """The conversations of files and of an earlier `synthesize` stage, to be compared where the assistant writes."""
        if self.config.on_policy == 1:
            return [], []
        made = sorted(self.inputs["conversations"].glob("*.jsonl")) if "conversations" in self.inputs else []
        files = [*map(Path, self.config.files), *made]
        chat, longest = chat_format(self.model), self.config.sequence_length + 1
        found = [each for path in files for each in rendered_conversations(path, chat, longest)]
        if not found:
            raise RecipeError(
                f"on_policy is {self.config.on_policy:g}, and there are no conversations to learn from besides samples",
                place="distill",
                fix="give `files`, or a `synthesize` stage before it; or leave on_policy at 1",
            )
        across = isinstance(self.config.algorithm, AcrossAlgorithm)
        dialogues = [conversation_dialogue(*each, chat) for each in found] if across else []
        return [as_given(sequence) for sequence, _ in found], dialogues

    def _without_teacher(self, given: list[TokenSequence]) -> list[TokenSequence]:
        """Ask the teacher for its likeliest tokens once for all, and let it go: fixed texts have fixed answers."""
        algorithm = self.config.algorithm
        if not isinstance(algorithm, DivergenceAlgorithm) or algorithm.likeliest is None:
            return given
        self.folder.progress.say(f"asking the teacher about {len(given)} conversations, once for all steps")
        (teacher,) = self.teachers.values()
        self.teachers = {}
        sizes = algorithm.likeliest, self.config.sequence_length, self.config.temperature
        return teacher.with_likeliest(given, *sizes, self.processes, self.folder)

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
