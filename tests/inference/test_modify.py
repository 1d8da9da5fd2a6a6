"""Bias, masks, penalties and the least length: against transformers' processors and numbers worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ingot.inference.controls import Controls
from ingot.inference.draw import draw, draw_positions, unpack_kept
from ingot.inference.sampling import Sampling
from ingot.workspace.errors import IngotError

from .draws import draw_once, transformers_distribution

CPU = torch.device("cpu")
ZERO = torch.tensor([0])


class AnyText:
    """A constraint for the field of a sampling; the masks of these tests are given by hand."""

    def start(self) -> Any:
        raise NotImplementedError


def modified(logits: list[float], controls: Controls, steps: int = 0) -> list[float]:
    """One row after the changes, before temperature."""
    result = controls.modify(torch.tensor([logits]), torch.tensor([steps]))
    assert result is not None
    return result[0].tolist()


def one(size: int, prompt: list[int], text: list[int], **options: Any) -> Controls:
    return Controls([Sampling(**options)], CPU, size, [(prompt, text)])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "options",
    [
        {"repetition_penalty": 1.3},
        {"repetition_penalty": 0.7, "temperature": 0.6},
        {"logit_bias": ((3, 2.5), (17, -4.0), (0, 1.0))},
        {"allowed_tokens": (1, 5, 8, 13, 21)},
        {"min_new_tokens": 4, "stop_tokens": (2, 9)},
        {"min_new_tokens": 3, "stop_tokens": (2, 9)},
        {"logit_bias": ((3, 2.5),), "allowed_tokens": (3, 5, 9), "repetition_penalty": 2.0, "temperature": 1.7},
    ],
)
def test_the_distribution_is_that_of_transformers(options: dict[str, Any], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(30, generator=generator) * 3
    prompt, text = torch.randint(30, (2, 3), generator=generator).tolist()
    sampling = Sampling(**options)
    result = Controls([sampling], CPU, 30, [(prompt, text)]).modify(logits[None], torch.tensor([len(text)]))
    ours = (logits[None] if result is None else result)[0].double().div(sampling.temperature).softmax(-1)
    torch.testing.assert_close(ours, transformers_distribution(logits, sampling, (prompt, text)), rtol=0, atol=1e-6)


def test_penalties_worked_out_by_hand() -> None:
    logits = [4.0, -1.0, 2.0, 0.5, 3.0]
    both: dict[str, Any] = {"frequency_penalty": 0.5, "presence_penalty": 0.25}
    # text 0 0 2: token 0 twice, token 2 once; the prompt counts for repetition only
    assert modified(logits, one(5, [4, 4, 1], [0, 0, 2], **both)) == [4 - 1.25, -1.0, 2 - 0.75, 0.5, 3.0]
    assert modified(logits, one(5, [4, 4, 1], [0, 0, 2], repetition_penalty=2.0)) == [2.0, -2.0, 1.0, 0.5, 1.5]
    # repetition first, then what is taken away
    assert modified(logits, one(5, [4, 1], [0, 0, 2], repetition_penalty=2.0, **both)) == [0.75, -2.0, 0.25, 0.5, 1.5]
    # a bias is there before the penalty divides
    biased = one(5, [0], [], repetition_penalty=2.0, logit_bias=((0, -3.0),))
    assert modified(logits, biased) == [0.5, -1.0, 2.0, 0.5, 3.0]
    # negative penalties make a text repeat itself
    assert modified(logits, one(5, [], [3], frequency_penalty=-2.0)) == [4.0, -1.0, 2.0, 2.5, 3.0]


def test_what_was_drawn_is_counted_on_the_device() -> None:
    """Two rows with other penalties, and one without: after each draw the counts are those of a fresh start."""
    samplings = [
        Sampling(seed=1, frequency_penalty=0.7, presence_penalty=-0.3),
        Sampling(seed=2),
        Sampling(seed=3, repetition_penalty=1.5, temperature=2.0),
    ]
    texts: list[list[int]] = [[], [], []]
    prompts = [[1, 2], [3], [4, 4, 5]]
    generator = torch.Generator().manual_seed(0)
    controls = Controls(samplings, CPU, 12, list(zip(prompts, texts, strict=True)))
    for step in range(25):
        logits, steps = torch.randn(3, 12, generator=generator), torch.full((3,), step)
        fresh = Controls(samplings, CPU, 12, list(zip(prompts, texts, strict=True)))
        expected, found = fresh.modify(logits, steps), controls.modify(logits, steps)
        assert expected is not None and found is not None
        assert torch.equal(expected, found)
        for text, token in zip(texts, draw(logits, controls, steps).ids_B.tolist(), strict=True):
            text.append(token)
    assert max(map(texts[0].count, range(12))) > 2


def test_stop_tokens_wait_for_the_least_length() -> None:
    controls = one(4, [], [], min_new_tokens=2, stop_tokens=(1, 3, 3, 99))
    assert modified([1.0, 9.0, 2.0, 9.0], controls, steps=1) == [1.0, -math.inf, 2.0, -math.inf]
    assert modified([1.0, 9.0, 2.0, 9.0], controls, steps=2) == [1.0, 9.0, 2.0, 9.0]


def masks(rows: dict[int, list[int]], size: int) -> dict[int, Any]:
    found = {row: np.zeros(size, dtype=np.uint8) for row in rows}
    for row, tokens in rows.items():
        found[row][tokens] = 1
    return found


def test_masks_of_constraints_hold_for_one_draw() -> None:
    samplings = [
        Sampling(seed=0, constraint=AnyText()),
        Sampling(seed=1),
        Sampling(seed=2, constraint=AnyText(), allowed_tokens=(4, 5)),
    ]
    logits, steps = torch.randn(3, 8, generator=torch.Generator().manual_seed(0)), torch.zeros(3, dtype=torch.int64)
    controls = Controls(samplings, CPU, 8)
    assert controls.needs_host
    with pytest.raises(IngotError, match="without new masks"):
        draw(logits, controls, steps)
    for first in range(8):
        controls.set_masks(masks({0: [first], 2: [first, 5]}, 8))
        drawn = draw(logits, controls, steps)
        assert drawn.ids_B[0] == first and int(drawn.ids_B[2]) in {4, 5} & {first, 5}
        torch.testing.assert_close(drawn.logprobs_B[0], logits[0].double().log_softmax(-1)[first], rtol=0, atol=1e-6)
    with pytest.raises(IngotError, match="without new masks"):
        draw(logits, controls, steps)
    with pytest.raises(IngotError, match=r"rows \[0, 2\] have constraints"):
        controls.set_masks(masks({0: [1]}, 8))


def test_logits_beyond_the_tokenizer_are_not_drawn_under_a_constraint() -> None:
    controls = Controls([Sampling(constraint=AnyText(), keep_set=True)], CPU, 9)
    controls.set_masks(masks({0: [1, 6]}, 7))
    drawn = draw(torch.zeros(1, 9), controls, ZERO)
    assert drawn.kept_BW is not None and unpack_kept(drawn.kept_BW[0]) == [1, 6]


def test_every_position_has_its_own_mask() -> None:
    controls = Controls([Sampling(), Sampling(constraint=AnyText())], CPU, 6)
    controls.repeated(3).set_masks(masks({3: [5], 4: [2], 5: [0]}, 6))
    drawn = draw_positions(torch.zeros(2, 3, 6), controls, torch.tensor([4, 7]))
    assert drawn.ids_B[3:].tolist() == [5, 2, 0]


def test_a_row_whose_masks_leave_nothing_says_so() -> None:
    logits = torch.zeros(2, 5)
    controls = Controls([Sampling(constraint=AnyText()), Sampling(seed=1)], CPU, 5)
    controls.set_masks(masks({0: []}, 5))
    first, second = draw(logits, controls, torch.zeros(2, dtype=torch.int64)).logprobs_B.tolist()
    assert math.isnan(first) and second == pytest.approx(-math.log(5))
    banned = [Sampling(allowed_tokens=(1,), min_new_tokens=1, stop_tokens=(1,), temperature=0.0)]
    assert math.isnan(float(draw_once(torch.zeros(1, 5), banned, [0]).logprobs_B[0]))


def test_a_batch_without_constraints_needs_no_host() -> None:
    controls = Controls([Sampling(repetition_penalty=1.2)], CPU, 5)
    assert not controls.needs_host
    with pytest.raises(IngotError, match="without constraints"):
        controls.set_masks({})


@pytest.mark.parametrize("options", [{"logit_bias": ((5, 1.0),)}, {"allowed_tokens": (2, 7)}])
def test_tokens_outside_the_vocabulary_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(IngotError, match="is not in the vocabulary of 5"):
        Controls([Sampling(**options)], CPU, 5)


def test_the_models_own_logits_stay_as_they_are() -> None:
    logits = torch.randn(2, 9).bfloat16()
    before: Tensor = logits.clone()
    draw_once(
        logits, [Sampling(logit_bias=((1, 5.0),)), Sampling(repetition_penalty=3.0)], [0, 0], [((), ()), ([2], [3])]
    )
    assert torch.equal(logits, before)
