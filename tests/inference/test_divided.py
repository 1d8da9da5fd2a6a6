"""An engine over two processes against one device: texts, log-probabilities, scores, weights in flight; what it refuses.

One model has all kinds of layers that are divided (grouped attention, mixture, latent attention, a window's ring), and one that
is whole on each rank (a recurrent state), so that one group shows them all. The log-probabilities are also those of full passes
without a cache, in float64.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ingot.inference.checksum import weights_checksum
from ingot.inference.divided.group import EngineGroup
from ingot.inference.divided.rank import Cut, build_part, load_part
from ingot.inference.engine import Engine
from ingot.inference.request import Request
from ingot.inference.sampling import Sampling
from ingot.inference.speculate.config import Speculation
from ingot.model.config import ModelConfig
from ingot.model.transformer import Transformer
from ingot.train.layouts.steps import fresh
from ingot.workspace.errors import CheckFailed, IngotError, RecipeError
from tests.inference.conftest import reference_logprobs
from tests.post.making import nudged
from tests.train.parallel.models import DENSE, MLA, MOE, VOCABULARY
from tests.train.parallel.ranks import run_ranks

LENGTH, SLOTS, CHUNK = 64, 4, 20
TOLERANCE = 1e-5
PAGE_BYTES = 3584  # of the three layers with pages, on one rank
WINDOW: dict[str, Any] = {**DENSE, "mixer": {**DENSE["mixer"], "window": 7, "sinks": True}}
STATE: dict[str, Any] = {"mixer": {"kind": "lightning", "heads": 4, "head_width": 8}, "feed_forward": {"width": 48}}
BLOCKS = {"dense": DENSE, "moe": MOE, "mla": MLA, "window": WINDOW, "state": STATE}
MIXED = ModelConfig.model_validate(
    {
        "vocabulary_size": VOCABULARY,
        "width": 32,
        "blocks": BLOCKS,
        "layers": "dense moe mla window state",
        "context": LENGTH,
        "initial": {"std": 0.2},
    }
)
GREEDY, DRAWN = Sampling(temperature=0, max_new_tokens=12), Sampling(temperature=0.9, max_new_tokens=14, seed=5)


def mixed(seed: int = 3) -> Transformer:
    return fresh(MIXED, seed).eval()


@pytest.fixture(scope="module")
def group() -> Iterator[EngineGroup]:
    made = EngineGroup(MIXED, torch.float32, ["cpu", "cpu"])
    yield made
    made.close()


def prompt(length: int, seed: int) -> list[int]:
    return torch.randint(VOCABULARY, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


def submit(engine: Engine) -> list[Request]:
    """Texts with the same beginning, longer and shorter than pages and chunks; more than there are slots."""
    long = prompt(37, seed=0)
    prompts = [*(prompt(length, seed=length) for length in (1, 5, 16, 30)), long, long]
    return [engine.submit(each, GREEDY if at % 2 else DRAWN) for at, each in enumerate(prompts)]


def finish(*engines: Engine) -> None:
    for engine in engines:
        while engine.busy:
            engine.step()


def check(divided: list[Request], whole: list[Request]) -> None:
    for mine, other in zip(divided, whole, strict=True):
        assert (mine.tokens, mine.versions, mine.finish) == (other.tokens, other.versions, other.finish)
        assert mine.logprobs == pytest.approx(other.logprobs, abs=TOLERANCE)


def test_texts_and_scores_are_those_of_one_device_and_of_full_passes(group: EngineGroup) -> None:
    """Also when requests are preempted, a conversation goes on, and texts are scored."""
    model, exact = mixed(), mixed().double()
    whole = Engine(model, slots=SLOTS, length=LENGTH, chunk=CHUNK)
    engine = Engine(group.model, slots=SLOTS, length=LENGTH, chunk=CHUNK, cache_bytes=7 * PAGE_BYTES)
    engine.update(model.state_dict(), 3)
    whole.update(None, 3)
    assert engine.checksum == whole.checksum == weights_checksum(model)
    divided, plain = submit(engine), submit(whole)
    finish(engine, whole)
    assert engine.stats.preemptions > 0
    check(divided, plain)
    for each in divided:
        expected = reference_logprobs(exact, each.prompt, each.tokens, each.sampling.temperature)
        assert each.logprobs == pytest.approx(expected, abs=TOLERANCE)
    texts = [[*one.context, 4, 2] for one in divided[-3:]]  # the next turns
    turns = [[each.submit(text, GREEDY) for text in texts] for each in (engine, whole)]
    scored = [each.submit_scoring(divided[0].context, 5, lasts=[7, 8]) for each in (engine, whole)]
    finish(engine, whole)
    check(*turns)
    assert scored[0].scoring is not None and scored[1].scoring is not None
    for mine, other in zip(scored[0].scoring.result(), scored[1].scoring.result(), strict=True):
        assert mine[0] == pytest.approx(other[0], abs=1e-4) and mine[1] == other[1]
    echoed = [
        each.submit_scoring(divided[0].context, 1, likeliest=3) for each in (engine, whole)
    ]  # the server's `echo`
    finish(engine, whole)
    assert echoed[0].scoring is not None and echoed[1].scoring is not None
    for (mine, tops), (other, others) in zip(*(each.scoring.by_token() for each in echoed), strict=True):  # type: ignore[union-attr]
        assert mine == pytest.approx(other, abs=TOLERANCE)
        assert [value for _, value in tops] == pytest.approx([value for _, value in others], abs=TOLERANCE)


def test_weights_in_flight_reach_all_ranks_between_the_same_steps(group: EngineGroup) -> None:
    """Texts begun with one version go on with the next, and keep what the first has computed, as on one device."""
    old = mixed()
    new = nudged(old, 0.05, seed=1)
    engines = Engine(group.model, slots=SLOTS, length=LENGTH), Engine(copy.deepcopy(old), slots=SLOTS, length=LENGTH)
    sides = list[list[Request]]()
    for engine in engines:
        engine.update(old.state_dict(), 1)
        sides.append(submit(engine))
        for _ in range(6):
            engine.step()
        engine.update(new.state_dict(), 2)
        assert engine.checksum == weights_checksum(new)
        finish(engine)
    assert {1, 2} == set(sides[0][0].versions) and engines[0].stats.shared_tokens > 0
    check(*sides)


def test_what_is_not_finite_leaves_nothing_behind(group: EngineGroup) -> None:
    """The caches of all ranks are cleared: the next texts are right."""
    model, broken = mixed(), mixed()
    with torch.no_grad():
        broken.get_parameter("blocks.0.mixer.query_key_value.weight")[-1] = float("nan")  # a value of the second rank
    engine = Engine(group.model, slots=2, length=32)  # four pages: the next texts get the same ones
    engine.update(broken.state_dict(), 1)
    with pytest.raises(CheckFailed, match="not finite"):
        engine.complete([prompt(20, seed=1), prompt(20, seed=2)], [GREEDY] * 2)
    engine.update(model.state_dict(), 2)
    texts = [prompt(20, seed=1), prompt(3, seed=2)]  # a short one's page is read beyond its end, with weight zero
    found = engine.complete(texts, [GREEDY] * 2)
    expected = Engine(model, slots=2, length=32).complete(texts, [GREEDY] * 2)
    assert [each.tokens for each in found] == [each.tokens for each in expected]


def test_what_cannot_be_is_refused(group: EngineGroup) -> None:
    with pytest.raises(RecipeError, match=r"tensor \(4\) does not divide key_value_heads \(2\)"):
        EngineGroup(MIXED, torch.float32, ["cpu"] * 4)
    with pytest.raises(IngotError, match="needs as many different ones, not cuda:0, cuda:0"):
        EngineGroup(MIXED, torch.float32, ["cuda:0", "cuda:0"])
    with pytest.raises(IngotError, match="does not speculate"):
        Engine(group.model, length=LENGTH, speculate=Speculation())
    with pytest.raises(IngotError, match=r"are torch\.float32, not torch\.bfloat16"):
        Engine(group.model, length=LENGTH, dtype=torch.bfloat16)
    engine = Engine(group.model, slots=1, length=LENGTH)
    with pytest.raises(IngotError, match=r"embedding.weight has shape \(48, 32\), the model \(96, 32\)"):
        engine.update(mixed().state_dict() | {"embedding.weight": torch.zeros(VOCABULARY // 2, 32)}, 1)
    with pytest.raises(IngotError, match="has its own copy of the model"):
        engine.update(None, 1)


class Wrong(Cut):
    """Keeps something else than it was sent."""

    def part(self, whole: Tensor, rank: int, ranks: int) -> Tensor:
        return super().part(whole, rank, ranks) + 1


def load(wrong: Sequence[str | None]) -> list[int | str]:
    """The checksum, or the error, for each weight that is wrong on rank 1."""
    model, cuts = build_part(Transformer, MIXED, torch.float32, torch.device("cpu"))
    leads, said = torch.distributed.get_rank() == 0, list[int | str]()
    for name in wrong:
        own = dict(cuts)
        if name is not None and not leads:
            own[name] = Wrong(cuts[name].axis, cuts[name].order)
        try:
            said.append(load_part(model, own, mixed().state_dict() if leads else None))
        except CheckFailed as error:
            said.append(str(error))
    return said


@pytest.mark.slow
def test_a_part_that_is_not_what_was_sent_is_found(tmp_path: Path) -> None:
    """Of a weight that is divided, and of one that all ranks have whole."""
    names = ["blocks.0.feed_forward.gate_up.weight", "blocks.1.feed_forward.router.selection_bias", "norm.gain"]
    right, *errors = run_ranks(2, load, tmp_path / "store", [None, *names])[0]
    assert right == weights_checksum(mixed())
    for name, error in zip(names, errors, strict=True):
        assert f"{name} did not arrive as it was sent" in str(error)
