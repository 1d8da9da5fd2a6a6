"""Answers without an advantage do not pass through the model: loss and gradient are those of the loop with all answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from ingot.model.config import ModelConfig
from ingot.model.transformer import Transformer
from ingot.post.algorithm import RL, RlAlgorithm
from ingot.post.rl.config import RlConfig
from ingot.post.rl.skip_zero_advantage import learns_by_advantage_alone
from ingot.post.rl.source import RlSource
from ingot.tokens.tokenizer import Tokenizer
from ingot.train.losses.surrogates import Clip, ClippedWeight, SoftGate, Surrogate
from ingot.workspace.stage import StageFolder
from tests.post.making import SUMS, Step, one_step, tiny_model

MakeFolder = Callable[[str], StageFolder]
GROUP = 4


def scripted(name: str, earned: Sequence[float], **options: Any) -> RlAlgorithm:
    """The algorithm, where the answers of a step earn these rewards in their order."""
    kind = RL.find(name)

    class Scripted(kind):  # type: ignore[valid-type,misc]
        def rewards(self, samples: Any) -> list[float | None]:
            return list(earned)

    return Scripted(**options)


def source_of(model: Transformer, algorithm: RlAlgorithm, folder: StageFolder, **options: Any) -> RlSource:
    usual: dict[str, Any] = {"steps": 1, "sequence_length": 64, "tasks": SUMS, "prompts_per_step": 4, "group": GROUP}
    usual |= {"mini_batches": 1}
    usual |= {"max_new_tokens": 6, "algorithm": algorithm, "precision": "float32", "device": "cpu", "canary": None}
    return RlSource(model, RlConfig.model_validate(usual | options), folder)


def step_of(tokenizer: Tokenizer, algorithm: RlAlgorithm, folder: StageFolder, **options: Any) -> tuple[Step, int]:
    """A step of the loop, and how many answers passed through the model."""
    model = tiny_model(tokenizer)
    source = source_of(model, algorithm, folder, **options)
    terms = algorithm.terms(model, source.config)
    passed: list[int] = []
    given = source.batches

    def counted(step: int, rank: int = 0, world: int = 1) -> Any:
        batches, metrics = given(step, rank, world)
        passed.append(sum(len(set(row.tolist()) - {-1}) for batch in batches for row in batch.documents))
        return batches, metrics

    source.batches = counted  # type: ignore[method-assign]
    return one_step(model, terms, source, folder), passed[0]


MIXED = [*(1, 0, 0, 1), *(1, 1, 1, 1), *(0, 0, 0, 0), *(0, 1, 1, 1)]
CASES: list[tuple[str, dict[str, Any]]] = [
    ("grpo", {}),
    ("grpo", {"divide_by_std": True, "aggregation": "sequence"}),
    ("grpo", {"aggregation": "group"}),
    ("grpo", {"aggregation": "constant", "sequence_mask": 0.1, "importance": {"level": "product"}}),
    ("dr_grpo", {}),
    ("dapo", {}),
    ("gspo", {}),
    ("cispo", {}),
    ("sapo", {}),
    ("rloo", {"reference_weight": 0.0}),
]


@pytest.mark.parametrize(("name", "options"), CASES, ids=[f"{name}{len(options) or ''}" for name, options in CASES])
def test_loss_and_gradient_are_those_of_all_answers(
    name: str, options: dict[str, Any], tokenizer: Tokenizer, make_folder: MakeFolder
) -> None:
    algorithm = scripted(name, MIXED, **options)
    more = {"dynamic_sampling": None} if name == "dapo" else {}
    every, all_answers = step_of(tokenizer, algorithm, make_folder("all"), pass_all=True, **more)
    some, passed = step_of(tokenizer, algorithm, make_folder("some"), **more)
    assert (all_answers, passed) == (16, 8)
    assert some.metrics["loss"] == pytest.approx(every.metrics["loss"], rel=1e-5, abs=1e-7)
    assert some.metrics["passed_share"] == 0.5 and some.metrics["ratio_mean"] == pytest.approx(1.0, abs=1e-4)
    largest = max(float(each.abs().max()) for each in every.gradients.values())
    assert largest > 1e-3
    for key, gradient in every.gradients.items():
        assert float((some.gradients[key] - gradient).abs().max()) < 1e-5 * largest, key


def test_where_no_answer_has_an_advantage_one_passes(tokenizer: Tokenizer, make_folder: MakeFolder) -> None:
    """The loop has a step as always, and nothing in it moves the model."""
    step, passed = step_of(tokenizer, scripted("grpo", [1.0] * 16), make_folder("rl"))
    assert passed == 1 and step.metrics["loss"] == 0
    assert all(not each.any() for each in step.gradients.values())


@pytest.mark.parametrize(
    ("name", "options"),
    [("grpo", {"reference_weight": 0.1}), ("ppo", {})],
)
def test_all_pass_where_others_than_advantages_move_the_model(
    name: str, options: dict[str, Any], tokenizer: Tokenizer, make_folder: MakeFolder
) -> None:
    """A divergence in the loss, a value head."""
    algorithm = scripted(name, MIXED, **options)
    assert not learns_by_advantage_alone(algorithm, tiny_model(tokenizer))
    in_reward = scripted("grpo", MIXED, reference_weight=0.1, reference_in="reward")
    assert learns_by_advantage_alone(in_reward, tiny_model(tokenizer))


LATENT = {"kind": "mla", "heads": 4, "key_value_latent": 16, "content_width": 8, "rope_width": 8, "value_width": 8}
MODELS: dict[str, tuple[dict[str, Any], bool]] = {
    "dense": ({}, True),
    "mixture without a loss": (
        {"feed_forward": {"kind": "moe", "experts": 4, "active": 2, "expert": {"width": 16}}},
        False,
    ),
    "an indexer with its loss": (
        {"mixer": {**LATENT, "query_latent": 16, "sparse": {"heads": 4, "head_width": 16, "keep": 4, "loss": 1.0}}},
        False,
    ),
    "latent attention alone": ({"mixer": LATENT}, True),
}


@pytest.mark.parametrize("name", MODELS)
def test_all_pass_where_parts_of_the_model_learn_from_every_token(name: str, tokenizer: Tokenizer) -> None:
    changes, alone = MODELS[name]
    given = tiny_model(tokenizer).config.model_dump(exclude_unset=True)
    block = {**given["blocks"]["layer"], **changes}
    config = ModelConfig.model_validate({**given, "blocks": {"layer": block}})
    assert learns_by_advantage_alone(RL.find("grpo")(), Transformer(config)) == alone


class Squared(Surrogate):
    """Kimi's: an answer of mean worth still pulls on its ratio."""

    def __call__(
        self, ratio: torch.Tensor, advantage: torch.Tensor, logprobs: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return -((advantage - ratio.log()) ** 2), torch.zeros_like(ratio, dtype=torch.bool)


def test_a_surrogate_from_outside_must_say_that_it_is_in_proportion(tokenizer: Tokenizer) -> None:
    class Own(RL.find("grpo")):  # type: ignore[misc]
        def surrogate(self) -> Surrogate:
            return Squared()

    assert not learns_by_advantage_alone(Own(), tiny_model(tokenizer))


@pytest.mark.parametrize("surrogate", [Clip(), Clip(dual=3.0), ClippedWeight(), ClippedWeight(0.5, 2.0), SoftGate()])
def test_ours_are_in_proportion(surrogate: Surrogate) -> None:
    generator = torch.Generator().manual_seed(0)
    ratio = torch.rand(200, generator=generator, dtype=torch.float64) * 5
    advantage, logprobs = torch.randn(2, 200, generator=generator, dtype=torch.float64)
    assert surrogate.proportional
    for factor in (0.0, 0.3, 7.0):
        expected = factor * surrogate(ratio, advantage, logprobs)[0]
        torch.testing.assert_close(surrogate(ratio, factor * advantage, logprobs)[0], expected)
