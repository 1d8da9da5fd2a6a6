"""On-policy distillation: the student writes, the teacher grades every token.

Reverse KL as a policy gradient (Agarwal et al., arXiv 2306.13649; Lu et al., "On-policy distillation", 2025): for a token
that the student sampled,

    A_t = log teacher(token) − log student(token)

so that the student moves towards the teacher exactly where it goes itself. With the SFT checkpoint as teacher and general
prompts it undoes what RL on a narrow task forgot, without undoing what it learnt elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as SequenceOf
from pathlib import Path
from typing import Any

from ingot.checkpoints.checkpoint import load_model
from ingot.envs.trajectory import Trajectory
from ingot.model.transformer import Transformer
from ingot.post.config import DistillConfig
from ingot.post.policy import sequence_logprobs
from ingot.post.processes import ALONE, Processes, begin
from ingot.post.sampling import SampledSource
from ingot.tokens.batch import Sequence
from ingot.train.device import choose_device
from ingot.train.loop import Trainer
from ingot.train.terms import PolicyGradient
from ingot.workspace.errors import RecipeError
from ingot.workspace.stage import StageFolder


class TeacherGraded(SampledSource):
    """Distillation's stamp: each token's advantage is how much likelier the teacher finds it."""

    def __init__(
        self,
        model: Transformer,
        teacher: Transformer,
        config: DistillConfig,
        folder: StageFolder,
        processes: Processes = ALONE,
        whole: Transformer | None = None,
    ) -> None:
        super().__init__(model, config, config.group, folder, processes, whole)
        self.teacher = teacher

    def advantages(self, trajectories: SequenceOf[Trajectory]) -> tuple[list[list[float]], dict[str, float]]:
        sequences = [Sequence(each.tokens()) for each in trajectories]
        graded = sequence_logprobs(self.teacher, sequences, self.config.sequence_length, processes=self.processes)
        rows, total, count = [], 0.0, 0
        for each, teacher in zip(trajectories, graded, strict=True):
            row = [t - s for t, s in zip(teacher, each.logprobs(), strict=True)]
            rows.append(row)
            total -= sum(a for a, sampled in zip(row, each.sampled(), strict=True) if sampled)
            count += each.sampled_count
        return rows, {"teacher_divergence": total / count}


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
    layout, model, fill = begin(config, inputs["checkpoint"])
    teacher = load_model(inputs["teacher"], device=choose_device(config.device))
    check_vocabularies(model, teacher, str(inputs["teacher"]))
    processes = Processes(layout, folder.stop)
    whole = processes.whole(model, inputs["checkpoint"])
    source = TeacherGraded(model, teacher.eval(), config, folder, processes, whole)
    terms, check = [PolicyGradient()], source.check_ratio
    Trainer(model, terms, source, config, folder, after_step=check, fill=fill, layout=layout).run()
    divergence = [row["teacher_divergence"] for row in processes.once(folder.metrics.read)]
    part = max(1, len(divergence) // 5)
    return {"first_divergence": sum(divergence[:part]) / part, "last_divergence": sum(divergence[-part:]) / part}
