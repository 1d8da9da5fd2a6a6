"""Speculation on a GPU, with CUDA graphs and without: texts are those of the engine without drafts."""

from __future__ import annotations

import pytest
import torch

from ingot.inference.engine import Engine
from ingot.inference.sampling import Sampling
from ingot.inference.speculate.config import Speculation
from tests.inference.speculate.oracle import with_oracle
from tests.inference.speculate.test_module import with_module
from tests.inference.test_engine_mixers import LENGTH, make_model, short_mini, text

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

PROMPTS = [text(size, size) for size in (1, 15, 30, 17, 33)]
SAMPLINGS = [Sampling(max_new_tokens=25 + seed, temperature=seed % 2, seed=seed) for seed in range(5)]


@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.parametrize(
    "name", ["llama-3.1-8b-mini", "gemma3-4b-mini", "deepseek-r1-mini", "qwen3-next-80b-a3b-mini", "phi-4-mini-mini"]
)
def test_the_same_text(name: str, graphs: bool) -> None:
    model = make_model(short_mini(name)).float().cuda()
    plain = Engine(model, slots=4, length=LENGTH, graphs=graphs).complete(PROMPTS, SAMPLINGS)
    engine = with_oracle(model, PROMPTS, SAMPLINGS, plain, slots=4, length=LENGTH, graphs=graphs)
    for one, other in zip(engine.complete(PROMPTS, SAMPLINGS), plain, strict=True):
        assert one.tokens == other.tokens
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-3)
    assert engine.stats.accepted_tokens > 40


@pytest.mark.parametrize("name", ["deepseek-r1-mini", "glm-4.5-mini", "qwen3-next-80b-a3b-mini"])
def test_modules(name: str) -> None:
    """The drafts of the module on the GPU are those on the CPU, nearly always: rounding may turn a tie."""
    model = make_model(with_module(name)).float()
    accepted = list[list[list[int]]]()
    for device in ("cpu", "cuda"):
        engine = Engine(model.to(device), slots=4, length=LENGTH, speculate=Speculation("mtp", tokens=3))
        speculator, drafts = engine._speculator, list[list[int]]()
        assert speculator is not None
        requests = [engine.submit(prompt, sampling) for prompt, sampling in zip(PROMPTS[:4], SAMPLINGS, strict=False)]
        for _ in range(8):
            engine.step()
            assert speculator.module is not None
            drafts += [speculator.module._drafts.get(request, []) for request in requests]
        accepted.append(drafts)
    same = [ours == theirs for ours, theirs in zip(*accepted, strict=True)]
    assert len(same) == 32 and sum(same) > 28
