"""The kernels on a device, and an engine that uses them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ingot.inference.engine import Engine
from ingot.inference.fused import block
from ingot.inference.fused.product import Stream
from ingot.inference.sampling import Sampling
from ingot.model.config import ModelConfig
from ingot.model.initialise import initialise
from ingot.model.transformer import Transformer
from tests.inference.fused.cases import CASES, Case, check

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_like_the_definition(case: Case) -> None:
    check(case, torch.bfloat16, "cuda", 2e-2)


@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.parametrize("rows", [1, 7, 40])
def test_log_probabilities_are_as_exact_as_without_the_kernels(
    rows: int, graphs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against the same weights in float32. Every third layer has a norm after its parts, which the kernels do not know."""
    usual = {"mixer": {"heads": 4, "key_value_heads": 2, "head_width": 32}, "feed_forward": {"width": 200}}
    blocks = {"usual": usual, "other": usual | {"residual": "sandwich"}}
    layers = "usual*2 other usual*2"
    config = {"vocabulary_size": 500, "width": 128, "blocks": blocks, "layers": layers, "context": 256}
    model = Transformer(ModelConfig.model_validate(config))
    initialise(model, seed=0)
    model = model.to("cuda", torch.bfloat16)
    exact = Transformer(model.config).cuda()
    exact.load_state_dict(model.state_dict())
    prompts = [[(7 * row + place) % 500 for place in range(3 + row)] for row in range(rows)]
    samplings = [Sampling(max_new_tokens=30, temperature=1.0, seed=row) for row in range(rows)]

    def error() -> float:
        errors = list[torch.Tensor]()
        engine = Engine(model, slots=rows, length=128, graphs=graphs)
        for prompt, made in zip(prompts, engine.complete(prompts, samplings), strict=True):
            tokens = torch.tensor([prompt + made.tokens], device="cuda")
            with torch.no_grad():
                logits = exact(tokens)[0, len(prompt) - 1 : -1].log_softmax(-1)
            expected = logits.gather(1, tokens[0, len(prompt) :, None])[:, 0].cpu()
            errors.append(expected - torch.tensor(made.logprobs))
        return torch.cat(errors).square().mean().sqrt().item()

    calls = list[object]()

    def fused_block(*arguments: Any) -> Stream:
        calls.append(arguments)
        return block.fused_block(*arguments)

    monkeypatch.setattr("ingot.inference.forward.fused_block", fused_block)
    with_kernels = error()
    assert calls  # they were used
    monkeypatch.setattr("ingot.inference.forward.block_can", lambda *_: False)
    assert with_kernels < 1.5 * error() + 1e-4
