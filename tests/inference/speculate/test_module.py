"""Drafts of the multi-token module with its cache, against the module over whole texts without one."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from ingot.inference.engine import Engine
from ingot.inference.request import Request
from ingot.inference.sampling import Sampling
from ingot.inference.speculate.config import Speculation
from ingot.inference.speculate.module import ModuleDrafter
from ingot.model.config import ModelConfig
from ingot.model.context import Context
from ingot.model.transformer import Transformer
from ingot.workspace.errors import IngotError
from tests.inference.speculate.oracle import bytes_of
from tests.inference.test_engine_mixers import LENGTH, check, finish, make_model, short_mini, text
from tests.model.minis import MINIS
from tests.slow import first_fast

KINDS = ("deepseek-r1-mini", "qwen3-next-80b-a3b-mini", "glm-4.5-mini", "glm-5-mini")


def with_module(name: str) -> ModelConfig:
    return short_mini(name).model_copy(update={"multi_token": MINIS[name].multi_token})


@torch.no_grad()
def drafts_without_cache(model: Transformer, context: list[int], count: int) -> list[int]:
    """The formula of module.py, over the whole text again for every draft."""
    module = model.multi_token
    assert module is not None
    states, following = model.hidden(torch.tensor([context]))[:, :-1], context[1:]
    drafts = list[int]()
    for _ in range(count):
        positions = torch.arange(len(following))[None]
        out: Tensor = module.parts[0](states, model.embed(torch.tensor([following])), Context(positions))
        drafts.append(int(model.head(out[:, -1]).argmax()))
        states, following = torch.cat((states, out[:, -1:]), dim=1), [*following, drafts[-1]]
    return drafts


class Recorded(ModuleDrafter):
    """Remembers what was proposed, and for which context."""

    def __init__(self, inner: ModuleDrafter) -> None:
        self.__dict__.update(inner.__dict__)
        self.proposed: list[tuple[list[int], list[int]]] = []

    def propose(self, request: Request, count: int) -> list[int]:
        drafts = super().propose(request, count)
        self.proposed.append((request.context, drafts))
        return drafts


def recorded(engine: Engine) -> Recorded:
    speculator = engine._speculator
    assert speculator is not None and speculator.module is not None
    speculator.module = speculator._drafter = drafter = Recorded(speculator.module)
    return drafter


@pytest.mark.parametrize("name", first_fast(KINDS, 2))
def test_drafts_and_texts(name: str) -> None:
    """Prompts in pieces, joining and leaving: drafts see the whole text before them, and texts are those of the full pass."""
    model, chance = make_model(with_module(name)), random.Random(2)
    engine = Engine(model, slots=3, length=LENGTH, chunk=16, speculate=Speculation("auto", tokens=3))
    drafter = recorded(engine)
    requests = []
    for number, size in enumerate((40, 1, 17)):
        sampling = Sampling(max_new_tokens=10 + number, temperature=number % 2, seed=number)
        requests.append(engine.submit(text(size, size), sampling))
        for _ in range(chance.randint(0, 4)):
            engine.step()
    finish(engine, requests)
    check(model, requests)
    with_drafts = [(context, drafts) for context, drafts in drafter.proposed if drafts]
    assert len(with_drafts) > 15
    for context, drafts in with_drafts[::3]:
        assert drafts == drafts_without_cache(model, context, len(drafts))
    assert engine.stats.drafted_tokens == sum(len(drafts) for _, drafts in drafter.proposed)


def test_under_pressure_and_at_the_end_of_the_room() -> None:
    """Few pages, texts up to the engine's length: drafts are cut, texts are not."""
    model = make_model(with_module("deepseek-r1-mini"))
    prompts = [text(size, size) for size in (74, 70, 86)]
    samplings = [Sampling(max_new_tokens=30, temperature=seed % 2, seed=seed) for seed in range(3)]
    plain = Engine(model, slots=3, length=LENGTH).complete(prompts, samplings)
    speculation = Speculation("mtp", tokens=4)
    engine = Engine(
        model, slots=3, length=LENGTH, chunk=32, cache_bytes=bytes_of(model, 11, LENGTH), speculate=speculation
    )
    completions = engine.complete(prompts, samplings)
    assert [one.tokens for one in completions] == [one.tokens for one in plain]
    assert engine.stats.preemptions > 0
    assert engine.stats.pages_used == 0


def test_a_module_that_knows_the_text_is_believed() -> None:
    """A model that always counts on, and a module that does too: every draft holds, so a pass gives all it may."""
    model = counting_model()
    engine = Engine(model, slots=2, length=64, speculate=Speculation("mtp", tokens=3))
    prompts, samplings = [[3, 4, 5], [9]], [Sampling(max_new_tokens=21, temperature=0.0)] * 2
    for prompt, one in zip(prompts, engine.complete(prompts, samplings), strict=True):
        assert one.tokens == [(prompt[-1] + 1 + step) % 16 for step in range(21)]
    counted = engine.stats
    assert counted.accepted_tokens == counted.drafted_tokens == 2 * 15  # one alone, then five times three and one more
    assert counted.steps == 6


def counting_model() -> Transformer:
    """Embeddings are one-hot; nothing is added on the way, and the head gives token v + 1 for the embedding of v."""
    config = with_module("glm-4.5-mini").model_copy(update={"vocabulary_size": 16, "tied_embeddings": False})
    model = make_model(config)
    module = model.multi_token
    assert module is not None
    one_hot = torch.eye(16, config.width, dtype=torch.float64)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("output.weight") or "experts" in name or "down" in name:
                parameter.zero_()
        model.embedding.weight.copy_(one_hot)
        model.output.weight.copy_(one_hot.roll(1, dims=0))
        inputs = module.get_parameter("parts.0.input.weight")
        inputs.zero_()
        inputs[:, : config.width] = torch.eye(config.width)  # the token that is known, not the state
    return model


def test_a_recurrent_module_is_refused() -> None:
    config = with_module("qwen3-next-80b-a3b-mini")
    assert config.multi_token is not None
    recurrent = next(name for name, block in config.blocks.items() if name != config.multi_token.block)
    module = config.multi_token.model_copy(update={"block": recurrent})
    model = make_model(config.model_copy(update={"multi_token": module}))
    with pytest.raises(IngotError, match="cannot take back"):
        Engine(model, slots=1, length=16, speculate=Speculation("mtp"))
    Engine(model, slots=1, length=16, speculate=Speculation("ngram"))
