"""PPO and REINFORCE++ against numbers that verl's and OpenRLHF's own functions gave for the inputs below.

Neither can be installed beside Ingot, so their functions were run once, in float64, from these sources:

    verl      b178a3cd (0.8.0.dev)   trainer/ppo/core_algos.py: compute_gae_advantage_return, compute_value_loss,
              compute_policy_loss, compute_reinforce_plus_plus_outcome_advantage, …_baseline_outcome_advantage
    OpenRLHF  3c3be623               trainer/ppo_utils/experience_maker.py: compute_advantages_and_returns;
              models/utils.py: compute_reward, which made the token rewards for verl too

Answer i, token t:  V = sin(1 + 3i + t),  log π_old = −1 − cos(i + 2t)/2,  log ref = −1.1 − 0.4 sin(2i + t);  β = 0.1, γ = 0.95,
λ = 0.9 for PPO, γ = 0.9 for REINFORCE++ (1 with tools, 1 and β = 0 with a baseline);  then V_new = V + 0.3 sin(5i + 2t), clip
0.2, and log π = log π_old + 2 sin(i + 3t), clip 0.2, dual clip 3. `tools` has results of tools, masked, inside of two answers.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from ingot.model.transformer import VALUE_HEAD
from ingot.post.algorithm import Samples
from ingot.post.algorithms.ppo import Ppo
from ingot.post.algorithms.reinforce_pp import ReinforcePp
from ingot.train.losses.terms import Scored
from tests.post.making import episode, with_logprobs

NUMBERS: dict[str, Any] = json.loads((Path(__file__).parent / "ppo_peer_numbers.json").read_text(encoding="utf-8"))
TOKENS = 7
MASKS = {
    "tools": [[1, 1, 1, 1, 1], [1, 1, 0, 0, 1, 1, 1], [1], [1, 1, 1, 0, 1, 1]],
    "whole": [[1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1], [1], [1, 1, 1, 1]],
}
REWARDS = (1.0, 0.0, 0.5, 1.0)
STAGE = SimpleNamespace(updates_per_batch=2, max_new_tokens=TOKENS)
ANSWER, TOKEN = torch.arange(4, dtype=torch.float64)[:, None], torch.arange(TOKENS, dtype=torch.float64)
VALUES = torch.sin(1 + 3 * ANSWER + TOKEN)
OLD, REFERENCE = -1 - torch.cos(ANSWER + 2 * TOKEN) / 2, -1.1 - 0.4 * torch.sin(2 * ANSWER + TOKEN)


def samples(masks: list[list[int]]) -> Samples:
    """Two tasks with two answers each, after prompts of two tokens."""

    def rows(numbers: Tensor) -> list[list[float]]:
        return [[9.0, 9.0, *numbers[place, : len(mask)].tolist()] for place, mask in enumerate(masks)]

    made = []
    for mask, reward, row in zip(masks, REWARDS, rows(OLD), strict=True):
        nodes: list[tuple[str, list[int]]] = [("prompt", [5, 6])]
        for one in mask:
            role = "assistant" if one else "tool"
            if nodes[-1][0] == role:
                nodes[-1][1].append(7)
            else:
                nodes.append((role, [7]))
        made.append(with_logprobs(episode(nodes, reward), row))
    return Samples(
        made,
        2,
        frozen_logprobs=lambda: rows(REFERENCE),
        old_logprobs=lambda: rows(OLD),
        values=lambda: rows(VALUES),
        limit=10**9,
    )


def flat(rows: list[list[float]]) -> list[float]:
    return [value for row in rows for value in row]


def sampled(rows: list[list[float]], masks: list[list[int]]) -> list[float]:
    """The numbers of sampled tokens, without prompts and tools."""
    pairs = zip(rows, masks, strict=True)
    return [value for row, mask in pairs for value, one in zip(row[2:], mask, strict=True) if one]


@pytest.mark.parametrize("name", MASKS)
def test_ppo_is_verls(name: str) -> None:
    """Whitened advantages and returns to 1e-7; the critic's and the clipped loss with the gradient of every token."""
    masks, wanted = MASKS[name], NUMBERS[f"ppo/{name}"]
    algorithm = Ppo(discount=0.95, smoothing=0.9, reference_weight=0.1, value_weight=1.0, value_clip=0.2, dual_clip=3.0)
    streams, _ = algorithm.streams(samples(masks))
    assert sampled(streams["advantage"], masks) == pytest.approx(flat(wanted["advantages"]), abs=1e-7)
    assert sampled(streams["return"], masks) == pytest.approx(flat(wanted["returns"]), abs=1e-7)

    chosen = {each: torch.tensor(sampled(rows, masks), dtype=torch.float64) for each, rows in streams.items()}
    mask = torch.tensor([[one == 1 for one in row] + [False] * (TOKENS - len(row)) for row in masks])
    chosen |= {"old_logprob": OLD[mask], "sampled_logprob": OLD[mask], "response_mask": torch.ones(int(mask.sum()))}
    policy = (OLD + 2 * torch.sin(ANSWER + 3 * TOKEN))[mask].requires_grad_()
    values = (VALUES + 0.3 * torch.sin(5 * ANSWER + 2 * TOKEN))[mask].requires_grad_()
    scored = Scored(policy, chosen, heads={VALUE_HEAD: values})
    gradient_term, value_term = algorithm.terms(cast("Any", None), STAGE)
    for term, given, part in ((gradient_term, policy, "policy"), (value_term, values, "value")):
        assert term.coefficient == 1 and set(term.needs) <= set(chosen)
        loss = term.numerator(scored)[0] / term.denominator(chosen)
        assert loss.item() == pytest.approx(wanted[f"{part}_loss"], abs=1e-7)
        (gradient,) = torch.autograd.grad(loss, given)
        assert gradient.tolist() == pytest.approx(flat(wanted[f"{part}_gradient"]), abs=1e-7)
    assert sum(value == 0 for value in flat(wanted["policy_gradient"])) > 3, "clips are at work"


def test_reinforce_pp_is_verls() -> None:
    masks = MASKS["whole"]
    rows, _ = ReinforcePp(discount=0.9, reference_weight=0.1).advantages(samples(masks))
    assert sampled(rows, masks) == pytest.approx(flat(NUMBERS["reinforce_pp/verl"]), abs=1e-7)
    rows, _ = ReinforcePp(baseline=True, reference_weight=0).advantages(samples(masks))
    assert sampled(rows, masks) == pytest.approx(flat(NUMBERS["reinforce_pp_baseline/verl"]), abs=1e-7)


@pytest.mark.parametrize(
    ("name", "masks", "options"),
    [
        ("reinforce_pp", "whole", {"discount": 0.9, "reference_weight": 0.1}),
        ("reinforce_pp_tools", "tools", {"reference_weight": 0.1}),
        ("reinforce_pp_baseline", "whole", {"baseline": True, "reference_weight": 0}),
    ],
)
def test_reinforce_pp_is_openrlhfs_but_for_bessel(name: str, masks: str, options: dict[str, Any]) -> None:
    """OpenRLHF divides the variance by n, verl and Ingot by n − 1: all advantages differ by one factor. It is in float32."""
    rows, _ = ReinforcePp(**options).advantages(samples(MASKS[masks]))
    wanted = flat(NUMBERS[f"{name}/openrlhf"])
    factor = math.sqrt((len(wanted) - 1) / len(wanted))
    assert sampled(rows, MASKS[masks]) == pytest.approx([factor * value for value in wanted], abs=2e-6)
