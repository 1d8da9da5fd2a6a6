"""The loss and its gradient do not depend on packing, micro-batching or the order of sequences.

Each loss term is run through the real trainer on the same sequences cut in many ways, and compared with its formula on
every sequence by itself, both in float64, so that a difference is a mistake and not a rounding.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from ingot.model.config import MultiTokenConfig
from ingot.model.context import Context
from ingot.model.transformer import Transformer
from ingot.tokens.batch import Batch
from ingot.tokens.batch import TokenSequence as Text
from ingot.tokens.packing import make_batch
from ingot.train.batches import split_rows
from ingot.train.losses.off_policy import Importance
from ingot.train.losses.policy_gradient import Aggregation, PolicyGradient, ReferenceDivergence
from ingot.train.losses.preference import (
    AnchoredDown,
    AnchoredZero,
    IdentityPreference,
    KahnemanTversky,
    OddsRatio,
    Preference,
    SimplePreference,
)
from ingot.train.losses.surrogates import Clip
from ingot.train.losses.terms import CrossEntropy, LossTerm, MultiTokenPrediction, ZLoss
from tests.making.stages import stage_folder
from tests.model.tiny import VOCABULARY, mixed_config, random_model
from tests.slow import first_fast
from tests.train.toy import loss_and_gradients

Group = list[Text]  # sequences that must share a micro-batch
Reference = Callable[[list[Tensor], list[dict[str, Tensor]]], Tensor]  # of log p and streams of every sequence
PAIRS, LONGEST = 7, 14
POINT = 0.25  # the reference point of KTO


def make_groups() -> list[Group]:
    """Pairs of sequences with every stream that a term reads; some tokens are scored by one term and not by another."""
    rng, groups = random.Random(3), []
    for pair in range(PAIRS):
        group = []
        for half in ("chosen", "rejected"):
            length = rng.randint(3, LONGEST)
            prompt = rng.randint(1, length - 1)
            answer = [0.0] * prompt + [1.0] * (length - prompt)
            streams = {
                "weight": [rng.choice((0.0, 0.5, 1.0, 2.0)) for _ in range(length)],
                "response_mask": answer,
                "advantage": [one * rng.gauss(0, 1) for one in answer],
                "sampled_logprob": [one * rng.gauss(-4, 1) for one in answer],
                "old_logprob": [one * rng.gauss(-4, 1) for one in answer],
                "sequence": [one * (2 * pair + (half == "chosen") + 1) for one in answer],
                "episode_tokens": [one * sum(answer[1:]) for one in answer],
                "reference_logprob": [one * rng.gauss(-4, 1) for one in answer],
                "reference_point": [one * POINT for one in answer],
                "chosen": [one * (pair + 1) * (half == "chosen") for one in answer],
                "rejected": [one * (pair + 1) * (half == "rejected") for one in answer],
            }
            group.append(Text([rng.randrange(VOCABULARY) for _ in range(length)], streams))
        groups.append(group)
    return groups


GROUPS = make_groups()
UNSCORED = Text([5, 6, 7, 8], {name: [0.0] * 4 for name in GROUPS[0][0].streams})


def micro_batches(sizes: Sequence[int], capacity: int, order: Sequence[int]) -> list[Batch]:
    """The groups in `order`, so many of them in each micro-batch."""
    groups = iter([GROUPS[index] for index in order])
    return [
        make_batch([text for group in itertools.islice(groups, size) for text in group], capacity) for size in sizes
    ]


FORWARD, BACKWARD, MIXED = range(PAIRS), range(PAIRS)[::-1], (3, 0, 6, 2, 5, 1, 4)
TOTAL = sum(len(text.tokens) for group in GROUPS for text in group)
CUTS = {
    "one row": micro_batches([PAIRS], TOTAL, FORWARD),
    "short rows": micro_batches([PAIRS], LONGEST, FORWARD),
    "long rows, backward": micro_batches([PAIRS], 40, BACKWARD),
    "two micro-batches": micro_batches([4, 3], 24, MIXED),
    "uneven micro-batches": micro_batches([1, 5, 1], 33, MIXED),
    "a micro-batch for each pair": micro_batches([1] * PAIRS, LONGEST, BACKWARD),
    "a micro-batch without anything scored": [
        *micro_batches([3, 4], 20, FORWARD),
        make_batch([UNSCORED], 8),
    ],
}


assert len({tuple(tuple(batch.tokens.shape) for batch in batches) for batches in CUTS.values()}) == len(CUTS)


def log_probabilities(model: Transformer, text: Text, temperature: float) -> Tensor:
    """log p of tokens 1, 2, … of one sequence by itself."""
    logits = model(torch.tensor([text.tokens[:-1]]))[0] / temperature
    return logits.log_softmax(-1).gather(-1, torch.tensor(text.tokens[1:])[:, None])[:, 0]


TEXTS = [text for group in GROUPS for text in group]


def by_itself(model: Transformer, reference: Reference, temperature: float = 1.0) -> tuple[float, dict[str, Tensor]]:
    streams = [{name: torch.tensor(values[1:]) for name, values in text.streams.items()} for text in TEXTS]
    return with_gradients(model, reference([log_probabilities(model, text, temperature) for text in TEXTS], streams))


def with_gradients(model: Transformer, loss: Tensor) -> tuple[float, dict[str, Tensor]]:
    """The loss and its gradients."""
    names, parameters = zip(*model.named_parameters(), strict=True)
    return loss.item(), dict(zip(names, torch.autograd.grad(loss, parameters, retain_graph=True), strict=True))


def total(values: list[Tensor]) -> Tensor:
    return torch.stack([value.sum() for value in values]).sum()


def cross_entropy(logprobs: list[Tensor], streams: list[dict[str, Tensor]]) -> Tensor:
    weighted = [-stream["weight"] * logprob for logprob, stream in zip(logprobs, streams, strict=True)]
    return total(weighted) / total([stream["weight"] for stream in streams])


def policy_gradient(logprobs: list[Tensor], streams: list[dict[str, Tensor]]) -> Tensor:
    losses = []
    for logprob, stream in zip(logprobs, streams, strict=True):
        for place in stream["response_mask"].nonzero().flatten().tolist():
            ratio, advantage = (logprob[place] - stream["sampled_logprob"][place]).exp(), stream["advantage"][place]
            low, high = ratio.clamp(min=0.8), ratio.clamp(max=1.28)
            losses.append(-advantage * (high if advantage > 0 else low))
    return torch.stack(losses).mean()


def whole_answers(logprobs: list[Tensor], streams: list[dict[str, Tensor]]) -> Tensor:
    """GSPO's loss with the geometric mean over the sampler masked, and the unbiased divergence."""
    losses = []
    for logprob, stream in zip(logprobs, streams, strict=True):
        mask = stream["response_mask"] > 0
        names = "old_logprob", "sampled_logprob", "reference_logprob", "advantage"
        old, sampled, reference, advantage = (stream[name][mask].double() for name in names)
        new = logprob[mask]
        ratio = (new - old).mean().exp()
        weight = (old - sampled).mean().exp()
        surrogate = torch.minimum(ratio * advantage, ratio.clamp(0.6, 1.5) * advantage)
        distance = ratio * (reference.sub(new).exp() - 1 - reference + new)
        losses.append((-surrogate * (weight if 0.5 <= weight <= 2 else 0) + 0.1 * distance).mean())
    return torch.stack(losses).mean()


def divergence(logprobs: list[Tensor], streams: list[dict[str, Tensor]]) -> Tensor:
    losses = []
    for logprob, stream in zip(logprobs, streams, strict=True):
        mask = stream["response_mask"] > 0
        new, old, reference = logprob[mask], stream["sampled_logprob"][mask], stream["reference_logprob"][mask]
        losses.append((new - old).exp() * (reference.sub(new).exp() - 1 - reference + new))
    return torch.cat(losses).mean()


def answer_scores(
    logprobs: list[Tensor], streams: list[dict[str, Tensor]], mean: bool, referred: bool = True
) -> list[Tensor]:
    """Sum or mean over each answer of log p − log ref, or of log p alone."""
    scores = []
    for logprob, stream in zip(logprobs, streams, strict=True):
        ratio = (logprob - stream["reference_logprob"] if referred else logprob)[stream["response_mask"] > 0]
        scores.append(ratio.mean() if mean else ratio.sum())
    return scores


def of_pairs(loss: Callable[[Tensor, Tensor], Tensor], mean: bool, referred: bool = True) -> Reference:
    """The mean over pairs of a loss of the chosen and the rejected answer's score."""

    def total_loss(logprobs: list[Tensor], streams: list[dict[str, Tensor]]) -> Tensor:
        scores = answer_scores(logprobs, streams, mean, referred)
        return torch.stack([loss(*scores[first : first + 2]) for first in range(0, len(scores), 2)]).mean()

    return total_loss


def preference(normalised: bool) -> Reference:
    return of_pairs(lambda chosen, rejected: -logsigmoid(0.7 * (chosen - rejected)), normalised)


def odds(score: Tensor) -> Tensor:
    return score.exp() / (1 - score.exp())


def rated(logprobs: list[Tensor], streams: list[dict[str, Tensor]]) -> Tensor:
    """KTO, the reference point of every answer being POINT."""
    scores, losses = answer_scores(logprobs, streams, mean=False), []
    for number, score in enumerate(scores):
        weight, side = (0.4, -1) if number % 2 else (1.3, 1)
        losses.append(weight / (1 + (side * 0.7 * (score - POINT)).exp()))
    return torch.stack(losses).mean()


def all_terms(logprobs: list[Tensor], streams: list[dict[str, Tensor]]) -> Tensor:
    pieces = cross_entropy, policy_gradient, divergence, preference(True)
    weights = 0.5, 1.0, 0.2, 2.0
    return sum((w * piece(logprobs, streams) for w, piece in zip(weights, pieces, strict=True)), torch.zeros(()))


SEQUENCES = Aggregation("sequence")
CASES: dict[str, tuple[list[LossTerm], Reference]] = {
    "cross-entropy": ([CrossEntropy()], cross_entropy),
    "policy gradient": ([PolicyGradient()], policy_gradient),
    "whole answers": (
        [
            PolicyGradient(
                Clip(0.4, 0.5), "mean", SEQUENCES, (Importance("mean", "mask", low=0.5, high=2.0),), "old_logprob"
            ),
            ReferenceDivergence(0.1, "k3_unbiased", "mean", SEQUENCES, "old_logprob"),
        ],
        whole_answers,
    ),
    "reference divergence": ([ReferenceDivergence(coefficient=1.0)], divergence),
    "preference": ([Preference(beta=0.7)], preference(True)),
    "preference, summed": ([Preference(beta=0.7, length_normalised=False)], preference(False)),
    "robust preference": (
        [Preference(beta=0.7, label_smoothing=0.1, robust=True)],
        of_pairs(lambda a, b: (-0.9 * logsigmoid(0.7 * (a - b)) + 0.1 * logsigmoid(0.7 * (b - a))) / 0.8, mean=True),
    ),
    "conservative preference": (
        [Preference(beta=0.7, label_smoothing=0.1)],
        of_pairs(lambda a, b: -0.9 * logsigmoid(0.7 * (a - b)) - 0.1 * logsigmoid(0.7 * (b - a)), mean=True),
    ),
    "ipo": ([IdentityPreference(0.7)], of_pairs(lambda a, b: (a - b - 1 / 1.4) ** 2, mean=True)),
    "ipo, summed": (
        [IdentityPreference(0.7, length_normalised=False)],
        of_pairs(lambda a, b: (a - b - 1 / 1.4) ** 2, mean=False),
    ),
    "apo-zero": (
        [AnchoredZero(0.7)],
        of_pairs(lambda a, b: 1 / (1 + (0.7 * a).exp()) + 1 / (1 + (-0.7 * b).exp()), mean=False),
    ),
    "apo-down": (
        [AnchoredDown(0.7)],
        of_pairs(lambda a, b: 1 / (1 + (-0.7 * a).exp()) + 1 / (1 + (0.7 * (a - b)).exp()), mean=False),
    ),
    "simpo": (
        [SimplePreference(0.7, target_margin=0.3)],
        of_pairs(lambda a, b: -logsigmoid(0.7 * (a - b) - 0.3), mean=True, referred=False),
    ),
    "odds ratio": (
        [OddsRatio(0.7)],
        of_pairs(lambda a, b: -0.7 * logsigmoid((odds(a) / odds(b)).log()), mean=True, referred=False),
    ),
    "kto": ([KahnemanTversky(0.7, 1.3, 0.4)], rated),
    "all together": (
        [
            CrossEntropy(coefficient=0.5),
            PolicyGradient(),
            ReferenceDivergence(coefficient=0.2),
            Preference(beta=0.7, coefficient=2.0),
        ],
        all_terms,
    ),
}


def relative(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """The largest difference of any gradient, relative to the largest entry of its parameter's gradient."""
    assert found.keys() == expected.keys()
    return max(float((found[name] - value).abs().max() / value.abs().max()) for name, value in expected.items())


SOME_CUTS = ("short rows", "uneven micro-batches", "a micro-batch without anything scored")


@pytest.mark.parametrize("cuts", first_fast([SOME_CUTS, list(CUTS)]), ids=["some cuts", "all cuts"])
@pytest.mark.parametrize(("terms", "reference"), CASES.values(), ids=CASES.keys())
def test_every_cut_gives_the_loss_of_sequences_apart(
    terms: list[LossTerm], reference: Reference, cuts: Sequence[str], tmp_path: Path
) -> None:
    model = random_model(mixed_config()).double()
    loss, gradients = by_itself(model, reference)
    logged = []
    for name in cuts:
        metrics, found = loss_and_gradients(model, terms, CUTS[name], stage_folder(tmp_path / name))
        assert metrics["loss"] == pytest.approx(loss, rel=1e-12), name
        assert relative(found, gradients) < 1e-12, name
        logged.append({key: value for key, value in metrics.items() if key != "tokens"})
    for values in logged[1:]:
        assert values == pytest.approx(logged[0], rel=1e-6, abs=1e-9)


def z_loss(model: Transformer, text: Text) -> Tensor:
    """Σ w (log Z)² of one sequence."""
    log_normalisers = model(torch.tensor([text.tokens[:-1]]))[0].logsumexp(-1)
    return (torch.tensor(text.streams["weight"][1:]) * log_normalisers.square()).sum()


def multi_token(model: Transformer, text: Text) -> Tensor:
    """The mean over the steps of −Σ w log p of one sequence: step k goes over the places that know k tokens more."""
    assert model.multi_token is not None
    tokens, weight, losses = torch.tensor(text.tokens), torch.tensor(text.streams["weight"]), []
    state = model.hidden(tokens[None, :-1])
    for step, part in enumerate(model.multi_token.parts, 1):
        count = max(len(tokens) - 1 - step, 0)
        if count:
            places = torch.arange(step, step + count)[None]
            state = part(state[:, :count], model.embed(tokens[None, step:-1]), Context(places, None))
            logprobs = model.head(state)[0].log_softmax(-1).gather(-1, tokens[step + 1 :, None])[:, 0]
            losses.append(-(weight[step + 1 :] * logprobs).sum())
    return total(losses) / len(model.multi_token.parts) if losses else torch.zeros(())


def further_model(steps: int = 2) -> Transformer:
    shape = mixed_config()
    ahead = MultiTokenConfig(steps=steps, block=shape.layer_names[-1])
    return random_model(shape.model_copy(update={"multi_token": ahead})).double()


@pytest.mark.parametrize("cuts", first_fast([SOME_CUTS, list(CUTS)]), ids=["some cuts", "all cuts"])
def test_z_loss_and_multi_token_prediction_are_those_of_sequences_apart(cuts: Sequence[str], tmp_path: Path) -> None:
    plain, further = random_model(mixed_config()).double(), further_model()
    assert min(len(text.tokens) for text in TEXTS) == 3  # too short for the second step
    weight = total([torch.tensor(text.streams["weight"][1:]) for text in TEXTS])
    z = total([z_loss(plain, text) for text in TEXTS]) / weight
    ahead = total([multi_token(further, text) for text in TEXTS]) / weight
    both = 0.2 * total([z_loss(further, text) for text in TEXTS]) / weight + 0.7 * ahead
    cases: list[tuple[Transformer, list[LossTerm], Tensor]] = [
        (plain, [ZLoss(coefficient=1.0)], z),
        (further, [MultiTokenPrediction(coefficient=1.0)], ahead),
        (further, [ZLoss(coefficient=0.2), MultiTokenPrediction(coefficient=0.7)], both),
    ]
    for number, (model, terms, expected) in enumerate(cases):
        loss, gradients = with_gradients(model, expected)
        for name in cuts:
            folder = stage_folder(tmp_path / f"{number} {name}")
            metrics, found = loss_and_gradients(model, terms, CUTS[name], folder)
            assert metrics["loss"] == pytest.approx(loss, rel=1e-12), name
            assert relative(found, gradients) < 1e-12, name


def test_single_precision_is_as_good_as_its_rounding(tmp_path: Path) -> None:
    model = random_model(mixed_config())
    loss, gradients = by_itself(model, cross_entropy)
    for name, batches in CUTS.items():
        metrics, found = loss_and_gradients(model, [CrossEntropy()], batches, stage_folder(tmp_path / name))
        assert metrics["loss"] == pytest.approx(loss, rel=1e-6), name
        assert relative(found, gradients) < 5e-6, name


def test_the_temperature_divides_the_logits(tmp_path: Path) -> None:
    model = random_model(mixed_config()).double()
    loss, gradients = by_itself(model, policy_gradient, temperature=0.6)
    metrics, found = loss_and_gradients(
        model, [PolicyGradient()], CUTS["two micro-batches"], stage_folder(tmp_path), temperature=0.6
    )
    assert metrics["loss"] == pytest.approx(loss, rel=1e-12)
    assert relative(found, gradients) < 1e-12


def test_rows_of_a_batch_as_micro_batches(tmp_path: Path) -> None:
    """What the pre-training stage does with a batch of rows."""
    model = random_model(mixed_config()).double()
    loss, gradients = by_itself(model, cross_entropy)
    whole = CUTS["short rows"][0]
    for rows in (1, 2, 3, 100):
        pieces = split_rows(whole, rows)
        assert sum(len(piece.tokens) for piece in pieces) == len(whole.tokens)
        metrics, found = loss_and_gradients(model, [CrossEntropy()], pieces, stage_folder(tmp_path / str(rows)))
        assert metrics["loss"] == pytest.approx(loss, rel=1e-12)
        assert relative(found, gradients) < 1e-12
