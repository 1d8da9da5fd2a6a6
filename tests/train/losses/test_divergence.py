"""Distillation's terms against TRL's functions and against autograd on all logits, through the real trainer."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from ingot.model.transformer import Transformer
from ingot.tokens.batch import Batch
from ingot.tokens.batch import TokenSequence as Text
from ingot.tokens.packing import make_batch
from ingot.train.batches import Shapes, lengthen, padding_like, split_rows
from ingot.train.losses import score as score_module
from ingot.train.losses.divergence import STATES, Divergence, FullDivergence, TopKDivergence, generalised_jsd
from ingot.train.losses.score import score
from ingot.train.losses.terms import Distributions, LossTerm, Scored, Wants
from tests.making.stages import stage_folder
from tests.model.tiny import VOCABULARY, config, mixed_config, random_model
from tests.slow import first_fast
from tests.train.toy import loss_and_gradients

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
BETAS = (0.0, 0.3, 0.5, 1.0)
STUDENT, TEACHER = random_model(mixed_config()).double(), random_model(config(), seed=5).double()
KEPT = 4


def make_texts() -> list[Text]:
    """Answers after prompts, with the teacher's states and its likeliest tokens of every position."""
    rng, texts = random.Random(2), []
    for _ in range(9):
        tokens = [rng.randrange(VOCABULARY) for _ in range(rng.randint(3, 13))]
        prompt = rng.randint(1, len(tokens) - 1)
        mask = [float(place >= prompt) for place in range(len(tokens))]
        with torch.no_grad():
            states = TEACHER.hidden(torch.tensor([tokens]))[0].roll(1, dims=0)  # of the position that predicts a token
            values, ids = TEACHER.head(states).log_softmax(-1).topk(KEPT)
        values[tokens[0] % len(tokens), -1] = -torch.inf  # a server may know fewer
        vectors = {f"{STATES}/a": states, "teacher_tokens": ids, "teacher_logprobs": values}
        texts.append(Text(tokens, {"response_mask": mask, "sampled_logprob": [0.0] * len(tokens)}, vectors))
    return texts


TEXTS = make_texts()
CUTS: dict[str, list[Batch]] = {
    "one row": [make_batch(TEXTS, 200)],
    "short rows": [make_batch(TEXTS, 13)],
    "three micro-batches": split_rows(make_batch(TEXTS[::-1], 25), 2),
    "a micro-batch each": [lengthen(make_batch([text], 13), 8) for text in TEXTS],
    "shapes of a GPU": Shapes().round(split_rows(make_batch(TEXTS, 13), 2)),
    "padding too": [make_batch(TEXTS[:4], 20), make_batch(TEXTS[4:], 20), padding_like(make_batch(TEXTS[:1], 20))],
}


def student_and_teacher() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Logits of both for every token of the answers, each text by itself; the teacher's likeliest tokens."""
    own, other, ids, values = [], [], [], []
    for text in TEXTS:
        tokens, mask = torch.tensor([text.tokens[:-1]]), torch.tensor(text.streams["response_mask"][1:]) > 0
        own.append(STUDENT(tokens)[0][mask])
        other.append(TEACHER(tokens)[0][mask].detach())
        ids.append(text.vectors["teacher_tokens"][1:][mask])
        values.append(text.vectors["teacher_logprobs"][1:][mask])
    return torch.cat(own), torch.cat(other), torch.cat(ids), torch.cat(values)


def gradients(loss: Tensor) -> dict[str, Tensor]:
    names, parameters = zip(*STUDENT.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(loss, parameters), strict=True))


def same_in_every_cut(term: LossTerm, expected: Tensor, folder: Path, temperature: float = 1.0) -> None:
    wanted = gradients(expected)
    for name, batches in CUTS.items():
        metrics, found = loss_and_gradients(STUDENT, [term], batches, stage_folder(folder / name), temperature)
        assert metrics["loss"] == pytest.approx(expected.item(), rel=1e-10), name
        for parameter, value in wanted.items():
            assert (found[parameter] - value).abs().max() <= 1e-10 * value.abs().max(), (name, parameter)


@pytest.mark.parametrize(("beta", "temperature"), first_fast([(0.3, 0.9), (0.0, 1.0), (1.0, 1.0)]))
def test_the_whole_vocabulary_against_trl(beta: float, temperature: float, tmp_path: Path) -> None:
    from trl.experimental.gkd import GKDTrainer

    own, other, _, _ = student_and_teacher()
    expected = GKDTrainer.generalized_jsd_loss(
        own[None], other[None], beta=beta, temperature=temperature, num_items_in_batch=torch.tensor(len(own))
    )
    term = FullDivergence(beta=beta, teachers={"a": TEACHER.head, "b": STUDENT.head})
    same_in_every_cut(term, expected, tmp_path, temperature)


@pytest.mark.parametrize("beta", BETAS)
def test_the_chunked_loss_of_trl_is_the_same(beta: float) -> None:
    """DistillationTrainer's own kernel, which projects hidden states as we do."""
    from trl.trainer.distillation_trainer import _chunked_divergence_loss

    student, teacher = random_model(config()), random_model(config(), seed=5)
    tokens = torch.randint(VOCABULARY, (2, 9), generator=torch.Generator().manual_seed(1))
    states, others = student.hidden(tokens).detach().requires_grad_(), teacher.hidden(tokens).detach()
    heads = student.head_weight_VD, teacher.head_weight_VD.detach()
    loss, _, count = _chunked_divergence_loss(states, others, *heads, torch.ones(2, 9), beta)
    (expected,) = torch.autograd.grad(loss, states)
    pair = student.head(states).log_softmax(-1), teacher.head(others).log_softmax(-1)
    found = generalised_jsd(pair[0].flatten(0, 1), pair[1].flatten(0, 1), beta).mean()
    (gradient,) = torch.autograd.grad(found, states)
    assert count == 18 and found.item() == pytest.approx(loss.item(), rel=1e-5)
    torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("tail", [True, False])
def test_the_likeliest_tokens_against_trl(tail: bool, tmp_path: Path) -> None:
    from trl.experimental.server_distillation import ServerDistillationTrainer

    own, _, ids, values = student_and_teacher()
    asked = SimpleNamespace(
        loss_add_tail=tail, _reduce_divergence_loss=ServerDistillationTrainer._reduce_divergence_loss
    )
    given = {"topk_logprobs": values[None], "topk_token_ids": ids[None]}
    labels = torch.zeros(1, len(own), dtype=torch.long)
    expected = ServerDistillationTrainer._compute_server_forward_kl_loss(
        asked, given, own.log_softmax(-1)[None], labels
    )
    same_in_every_cut(TopKDivergence(beta=0.0, tail=tail), expected, tmp_path)


@pytest.mark.parametrize("beta", BETAS)
def test_all_tokens_as_likeliest_are_the_whole_vocabulary(beta: float) -> None:
    logits, others = torch.randn(2, 6, 11, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    values, ids = others.log_softmax(-1).topk(11)
    tokens = Distributions(logits, ids[:, 0], {}, {"teacher_tokens": ids, "teacher_logprobs": values}, 1.0)
    sparse = TopKDivergence(beta=beta, tail=False).measure(tokens)["teacher_divergence"]
    torch.testing.assert_close(sparse, generalised_jsd(logits.log_softmax(-1), others.log_softmax(-1), beta))


def test_one_token_teaches_nothing_without_a_tail() -> None:
    logits = torch.randn(3, 7, requires_grad=True)
    given = {
        "teacher_tokens": torch.tensor([[2], [4], [0]]),
        "teacher_logprobs": torch.tensor([[-0.5], [-1.0], [-2.0]]),
    }
    tokens = Distributions(logits, torch.zeros(3), {}, given, 1.0)

    def gradient(term: Divergence) -> Tensor:
        return torch.autograd.grad(term.measure(tokens)["teacher_divergence"].sum(), logits)[0]

    assert gradient(TopKDivergence(beta=0.0, tail=False)).abs().max() == 0
    assert gradient(TopKDivergence(beta=0.0, tail=True)).abs().max() > 0.1


class Entropy(LossTerm):
    """A term of a reader of the seam: −Σ p log p, with a head beside it."""

    name, needs, heads = "entropy", ("response_mask",), ("value",)

    def denominator(self, streams: object) -> Tensor:
        return torch.ones(())

    def measure(self, tokens: Distributions) -> dict[str, Tensor]:
        logs = tokens.logits.log_softmax(-1)
        return {"entropy": -(logs.exp() * logs).sum(-1)}

    def numerator(self, scored: Scored) -> tuple[Tensor, dict[str, Tensor]]:
        return (scored.streams["response_mask"] * scored.measured["entropy"] * scored.heads["value"]).sum(), {}


def with_head() -> Transformer:
    return random_model(mixed_config().model_copy(update={"heads": ("value",)})).double()


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_measures_and_heads_whatever_the_chunks(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against all logits at once; the backward pass makes them again chunk by chunk."""
    model, batch, term = with_head(), CUTS["short rows"][0], Entropy()
    seen: list[int] = []
    head: Callable[[Tensor], Tensor] = model.head

    def counted(states: Tensor) -> Tensor:
        seen.append(len(states))
        return head(states)

    states = model.hidden(batch.tokens, batch.positions, batch.documents)
    logs = head(states).log_softmax(-1)
    entropy, value = -(logs.exp() * logs).sum(-1), states @ model.get_parameter("heads.value.weight")[0]
    expected = (batch.streams["response_mask"] * entropy * value).sum()
    wanted = torch.autograd.grad(expected, list(model.parameters()))
    monkeypatch.setattr(model, "head", counted)
    monkeypatch.setattr(score_module, "CHUNK_LOGITS", size * VOCABULARY)
    found, _ = term.numerator(score(model, batch, wants=Wants.of([term])))
    assert found.item() == pytest.approx(expected.item(), rel=1e-12)
    for one, other in zip(torch.autograd.grad(found, list(model.parameters())), wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12 * float(other.abs().max()))
    assert max(seen) <= size
