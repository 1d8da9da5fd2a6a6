"""The stage `distill`: on-policy distillation. The student writes, the teacher grades every token (algorithms/reverse_kl.py)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ingot.checkpoints.checkpoint import load_model
from ingot.model.transformer import Transformer
from ingot.post.config import DistillConfig
from ingot.post.sampling import SampledSource
from ingot.post.stage import PostStage
from ingot.train.device import choose_device
from ingot.workspace.errors import RecipeError
from ingot.workspace.stage import StageFolder


class Distill(PostStage[DistillConfig]):
    """Samples of the student, graded by a frozen teacher."""

    def source(self) -> SampledSource:
        teacher = load_model(self.inputs["teacher"], device=choose_device(self.config.device))
        check_vocabularies(self.model, teacher, str(self.inputs["teacher"]))
        whole = self.processes.whole(self.model, self.inputs["checkpoint"])
        source = SampledSource(self.model, self.config, self.folder, self.processes, whole, teacher.eval())
        self.after_step = source.check_ratio
        return source

    def summary(self, last: dict[str, Any]) -> dict[str, Any]:
        names = "first_divergence", "last_divergence"
        return dict(zip(names, self.first_and_last("teacher_divergence"), strict=True))


def check_vocabularies(student: Transformer, teacher: Transformer, place: str) -> None:
    """Fail unless a token's number means the same to both."""
    fix = "distil from a teacher with the student's tokenizer"
    sizes = student.config.vocabulary_size, teacher.config.vocabulary_size
    if sizes[0] != sizes[1]:
        problem = f"student and teacher have different vocabularies ({sizes[0]} and {sizes[1]} tokens)"
        raise RecipeError(problem, place=place, fix=fix)
    if student.tokenizer is None or teacher.tokenizer is None:
        return
    own, other = (each.backend.get_vocab(with_added_tokens=True) for each in (student.tokenizer, teacher.tokenizer))
    if differing := [token for token in own if other.get(token) != own[token]]:
        problem = (
            f"the teacher has another number than the student for {len(differing)} tokens, {differing[0]!r} among them"
        )
        raise RecipeError(problem, place=place, fix=fix)


def run(config: DistillConfig, inputs: Mapping[str, Path], folder: StageFolder) -> dict[str, Any]:
    """Pull the input checkpoint towards the teacher on the given tasks; makes a checkpoint."""
    return Distill(config, inputs, folder).run()
