"""Distillation and the reference divergence as policy gradients: their expectation is the exact gradient of reverse KL.

A one-token answer is enumerated over the whole vocabulary: Σ_v p(v) · (gradient that answer v gets) must be the gradient
of KL(student ‖ teacher), which autograd takes from its definition.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from ingot.envs.episode import Episode
from ingot.model.transformer import Transformer
from ingot.post.distill import stage as distill
from ingot.post.distill.config import DistillConfig
from ingot.post.distill.source import StudentSamples
from ingot.post.distill.teacher import LocalTeacher
from ingot.post.policy import sequence_logprobs
from ingot.post.processes import ALONE
from ingot.post.rl.pipeline import SampleBatch
from ingot.tokens.batch import TokenSequence
from ingot.tokens.config import TokenizerConfig
from ingot.tokens.packing import make_batch
from ingot.tokens.tokenizer import Tokenizer
from ingot.tokens.train_tokenizer import train_tokenizer
from ingot.train.losses.policy_gradient import PolicyGradient, ReferenceDivergence
from ingot.train.losses.score import score
from ingot.train.losses.terms import LossTerm, Scored
from ingot.workspace.errors import RecipeError
from ingot.workspace.stage import StageFolder
from tests.post.making import CONTEXT, SUMS, checkpoint_of, episode, nudged, tiny_model, with_logprobs

PROMPT = [2, 40, 50, 60, 3]
CONFIG = DistillConfig(steps=1, sequence_length=CONTEXT, tasks=SUMS, device="cpu", precision="float32")

GKD = DistillConfig.model_validate({**CONFIG.model_dump(), "algorithm": "gkd"})


def graded(student: Transformer, teacher: Transformer, answers: list[Episode], folder: StageFolder) -> SampleBatch:
    """The answers with the advantages that the teacher gives."""
    samples = StudentSamples(student, CONFIG, folder, ALONE, None, {"one": LocalTeacher("one", teacher, None)})
    batch = SampleBatch(0, 1.0, CONFIG.max_new_tokens, episodes=answers)
    samples.pipeline.add_advantages(batch)
    return batch


def flat_gradient(model: Transformer, loss: Tensor) -> Tensor:
    return torch.cat([gradient.flatten() for gradient in torch.autograd.grad(loss, list(model.parameters()))])


def next_token(model: Transformer) -> Tensor:
    """log p of every token after the prompt."""
    return model(torch.tensor([PROMPT]))[0, -1].log_softmax(-1)


def exact_gradient(student: Transformer, teacher: Transformer) -> Tensor:
    """The gradient of KL(student ‖ teacher) for the token after the prompt."""
    logs, others = next_token(student), next_token(teacher).detach()
    return flat_gradient(student, (logs.exp() * (logs - others)).sum())


def every_answer(student: Transformer) -> list[Episode]:
    """All answers of one token, with the student's log-probability of each."""
    logs = next_token(student).tolist()
    answers = [episode([("prompt", PROMPT), ("assistant", [token])]) for token in range(len(logs))]
    return [with_logprobs(each, [0.0] * len(PROMPT) + [log]) for each, log in zip(answers, logs, strict=True)]


def expected_gradient(
    student: Transformer, term: LossTerm, answers: list[Episode], streams: list[dict[str, list[float]]]
) -> Tensor:
    """Σ_v p(v) · (the gradient that the term gives to answer v)."""
    sequences = []
    for each, more in zip(answers, streams, strict=True):
        mask = [float(one) for one in each.sampled()]
        masked = {name: [a * b for a, b in zip(row, mask, strict=True)] for name, row in more.items()}
        sequences.append(
            TokenSequence(each.tokens(), {"response_mask": mask, "sampled_logprob": each.logprobs(), **masked})
        )
    scored = score(student, make_batch(sequences, CONTEXT))
    assert len(scored.logprobs) == len(answers)
    leaf = scored.logprobs.detach().requires_grad_()
    (by_token,) = torch.autograd.grad(term.numerator(Scored(leaf, scored.streams))[0], leaf)
    return flat_gradient(student, (scored.logprobs * by_token * scored.streams["sampled_logprob"].exp()).sum())


def test_the_expected_gradient_of_distillation_is_that_of_reverse_kl(
    tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder]
) -> None:
    student = tiny_model(tokenizer)
    teacher = nudged(student, 0.05, seed=4)
    answers = every_answer(student)
    stamped = [
        {"advantage": row} for row in graded(student, teacher, answers, make_folder("distill")).streams["advantage"]
    ]
    estimated = expected_gradient(student, PolicyGradient(), answers, stamped)
    exact = exact_gradient(student, teacher)
    assert exact.abs().max() > 0.01
    assert (estimated - exact).abs().max() < 1e-6
    student, teacher = (
        student.double(),
        teacher.double(),
    )  # in float32 the mean would show how the normaliser was rounded
    metrics = graded(student, teacher, every_answer(student), make_folder("exact")).metrics
    with torch.no_grad():
        average = (next_token(student) - next_token(teacher)).mean().item()
    assert metrics["teacher_divergence"] == pytest.approx(average, rel=1e-4)


def test_the_expected_gradient_of_the_reference_term_is_that_of_reverse_kl(tokenizer: Tokenizer) -> None:
    policy = tiny_model(tokenizer)
    reference = nudged(policy, 0.05, seed=4)
    answers = every_answer(policy)
    rows = sequence_logprobs(reference, [TokenSequence(each.tokens()) for each in answers], CONTEXT)
    streams = [{"reference_logprob": row} for row in rows]
    estimated = expected_gradient(policy, ReferenceDivergence(1.0), answers, streams)
    assert (estimated - exact_gradient(policy, reference)).abs().max() < 1e-6


def test_gkd_refuses_a_teacher_with_another_vocabulary(
    tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder], tmp_path: Path
) -> None:
    other = train_tokenizer(["abc"])
    inputs = {
        "checkpoint": checkpoint_of(tiny_model(tokenizer), tmp_path / "student"),
        "teacher": checkpoint_of(tiny_model(other), tmp_path / "teacher"),
    }
    with pytest.raises(
        RecipeError, match=r"teacher: student and teacher have different vocabularies.*gkd compares token by token"
    ):
        distill.run(GKD, inputs, make_folder("distill"))


def test_gkd_refuses_a_teacher_that_numbers_tokens_otherwise(
    tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder], tmp_path: Path
) -> None:
    """As many tokens, and other ones: nothing else would ever find out."""
    other = train_tokenizer(["wholly other words, and more of them"] * 9, TokenizerConfig(vocabulary_size=300))
    teacher = tiny_model(tokenizer)
    teacher.tokenizer = other
    inputs = {
        "checkpoint": checkpoint_of(tiny_model(tokenizer), tmp_path / "student"),
        "teacher": checkpoint_of(teacher, tmp_path / "teacher"),
    }
    with pytest.raises(RecipeError, match=r"another number than the student for \d+ tokens"):
        distill.run(GKD, inputs, make_folder("distill"))


def test_a_temperature_is_refused() -> None:
    with pytest.raises(ValueError, match="leave temperature at 1"):
        DistillConfig(steps=1, sequence_length=8, temperature=0.5)
