"""The engine on a GPU, with captured graphs, while requests join and leave: log-probabilities of full passes on the CPU.

A step is launched before the one before it was read, rows that stay are moved on the device, and a graph of another size is
captured in between: a row that was mixed up would go on with the text of another, and its log-probabilities would show it.
Needs torch and pytest only.
"""

from __future__ import annotations

import copy
import random

import pytest
import torch

from ingot.inference.engine import Engine
from ingot.inference.request import Request
from ingot.inference.sampling import Sampling
from ingot.model.config import ModelConfig
from ingot.model.initialise import initialise
from ingot.model.presets.preset import preset
from ingot.model.transformer import Transformer
from tests.inference.conftest import reference_logprobs

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

VOCABULARY, LENGTH, REQUESTS = 128, 160, 60
FAMILIES = ["llama-3.1-8b-mini", "gemma3-4b-mini", "deepseek-v3-mini", "qwen3-next-80b-a3b-mini", "nemotron-h-8b-mini"]


def make_model(name: str) -> Transformer:
    model = Transformer(ModelConfig.model_validate(preset(name).model_dump() | {"vocabulary_size": VOCABULARY}))
    initialise(model, seed=0)
    return model.eval()


def ask(rng: random.Random) -> tuple[list[int], Sampling]:
    prompt = [rng.randrange(VOCABULARY) for _ in range(rng.randint(1, 90))]
    return prompt, Sampling(
        max_new_tokens=rng.randint(1, 60), temperature=rng.choice([0.0, 1.0]), seed=rng.randrange(99)
    )


@pytest.mark.parametrize("name", FAMILIES)
def test_requests_that_come_and_go(name: str) -> None:
    model, rng = make_model(name), random.Random(0)
    engine = Engine(copy.deepcopy(model).cuda(), slots=24, length=LENGTH)
    waiting, requests, cancelled = [ask(rng) for _ in range(REQUESTS)], list[Request](), list[Request]()
    while waiting or engine.busy:
        for _ in range(rng.choice([0, 0, 0, 1, 1, 2, 9])):
            if waiting:
                requests.append(engine.submit(*waiting.pop()))
        if requests and rng.random() < 0.05 and requests[-1].finish is None:
            cancelled.append(requests[-1])
            engine.cancel(requests[-1])
        engine.step()
    for request in requests:
        tokens, temperature = request.tokens, request.sampling.temperature
        if request not in cancelled:
            assert len(tokens) == request.limit
        if tokens:
            expected = reference_logprobs(model, request.prompt, tokens, temperature)
            assert request.logprobs == pytest.approx(expected, abs=2e-3)
