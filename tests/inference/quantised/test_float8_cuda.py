"""An engine in float8 on a GPU: captured graphs and prompts against full passes, weights cast on the device and on the CPU."""

from __future__ import annotations

import copy

import pytest
import torch

from ingot.inference.checksum import state_checksum, weights_checksum
from ingot.inference.engine import Engine
from ingot.inference.quantised.layers import Float8Linear
from ingot.inference.quantised.pack import pack_state, quantise_for_sampling
from ingot.inference.sampling import Sampling
from ingot.model.config import ModelConfig
from ingot.model.transformer import Transformer
from ingot.train.device import FLOAT8
from tests.inference.quantised.test_pack import make

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() < (8, 9),
    reason="needs a CUDA device with float8 products (Ada, Hopper or newer)",
)
SHAPE = {
    "vocabulary_size": 61,
    "width": 1024,
    "blocks": {
        "layer": {
            "mixer": {"heads": 16, "key_value_heads": 4, "head_width": 64, "query_key_value_bias": True},
            "feed_forward": {"width": 2048},
        }
    },
    "layers": "layer*2",
    "context": 256,
}


def learner(seed: int) -> Transformer:
    """In float32 on the device."""
    return make(ModelConfig.model_validate(SHAPE), seed).cuda()


def packed(model: Transformer) -> Transformer:
    copied = copy.deepcopy(model).bfloat16()
    assert len(quantise_for_sampling(copied, "float8").packed) == 2 * 4
    return copied


@pytest.mark.parametrize("graphs", [True, False])
def test_samples_are_those_of_full_passes(graphs: bool) -> None:
    """Their log-probabilities, also after new weights. Batches of other sizes are other kernels: a few roundings of bfloat16."""
    engine = Engine(learner(0), slots=24, length=128, dtype=FLOAT8, graphs=graphs)
    prompts = [[(7 * row + step) % 61 for step in range(3 + 5 * row)] for row in range(20)]
    samplings = [Sampling(max_new_tokens=16, temperature=1.0, seed=seed) for seed in range(20)]
    for version in (0, 1):
        model = packed(learner(version))
        if version:
            engine.update(learner(1).state_dict(), 1)
        assert engine.checksum == weights_checksum(model)
        for prompt, completion in zip(prompts, engine.complete(prompts, samplings), strict=True):
            tokens = torch.tensor([prompt + list(completion.tokens)], device="cuda")
            with torch.no_grad():
                logprobs = model(tokens[:, :-1])[0].float().log_softmax(-1)
            expected = logprobs.gather(1, tokens[0, 1:, None])[len(prompt) - 1 :, 0].cpu()
            torch.testing.assert_close(torch.tensor(completion.logprobs), expected, rtol=0, atol=0.1)


def test_both_devices_cast_to_the_same_bits() -> None:
    """A sampler on another device than the learner has the learner's checksum."""
    model = learner(2)
    there = packed(model)
    here = copy.deepcopy(model).cpu().bfloat16()
    quantise_for_sampling(here, "float8")
    assert weights_checksum(here) == weights_checksum(there)
    state = {name: value.cpu() for name, value in model.state_dict().items()}
    ends = (".values", ".scales")
    sent = {name: value for name, value in pack_state(here, state).items() if name.endswith(ends)}
    assert state_checksum(sent) == state_checksum({name: there.state_dict()[name] for name in sent})


def test_few_rows_equal_the_emulation() -> None:
    """Logits of 1 and of 100 tokens on the device, against the same rounding on the CPU."""
    model = packed(learner(3))
    here = copy.deepcopy(model).cpu().float()
    for module in here.modules():  # `.float()` widened what is in float8
        if isinstance(module, Float8Linear):
            module.values = module.values.to(FLOAT8)
    for count in (1, 100):
        tokens = torch.arange(count)[None] % 61
        with torch.no_grad():
            found, expected = model(tokens.cuda()).float().cpu(), here(tokens)
        # states are rounded to bfloat16 on the device, and a value near the middle of two of float8 goes either way
        assert float((found - expected).norm() / expected.norm()) < 0.06
