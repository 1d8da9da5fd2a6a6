"""The parts that transformers does not check: the start, and the promises about dtypes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ingot.model.initialise import initialise
from ingot.model.mixers.cache import CacheShape
from ingot.model.transformer import Transformer
from ingot.workspace.errors import ArtifactError
from tests.model.tiny import attention, config, mixed_config, random_model, random_tokens


def test_without_positions_the_order_of_the_past_does_not_matter() -> None:
    """One layer only: a second one would see the order through the causal mask of the first."""
    model = random_model(config(attention(rope=None), depth=1))
    tokens = random_tokens(1, 8)
    shuffled = tokens[:, [3, 0, 5, 1, 6, 2, 4, 7]]
    torch.testing.assert_close(model(tokens)[0, -1], model(shuffled)[0, -1], rtol=1e-5, atol=1e-5)
    rotated = random_model(config(depth=1))
    assert (rotated(tokens)[0, -1] - rotated(shuffled)[0, -1]).abs().max() > 0.01


def test_the_start_is_a_function_of_the_seed_alone() -> None:
    models = [Transformer(mixed_config(width=96)) for _ in range(3)]
    for model, seed in zip(models, (1, 1, 2), strict=True):
        torch.manual_seed(int(model is models[0]))
        before = torch.get_rng_state()
        initialise(model, seed)
        assert torch.equal(torch.get_rng_state(), before)
    states = [model.state_dict() for model in models]
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())
    assert not torch.equal(states[0]["embedding.weight"], states[2]["embedding.weight"])


@pytest.mark.parametrize("scaled", [True, False])
def test_standard_deviations_at_the_start(scaled: bool) -> None:
    model = Transformer(config(width=256, depth=8, initial={"std": 0.05, "depth_scaled": scaled}))
    initialise(model, 0)
    for name, parameter in model.named_parameters():
        if name.endswith("gain"):
            assert bool((parameter == 1).all())
        elif parameter.dim() == 2:
            writes = name.endswith(("mixer.output.weight", "feed_forward.down.weight"))
            expected = 0.05 / 4 if writes and scaled else 0.05  # sqrt(2·8) = 4
            assert float(parameter.detach().std()) == pytest.approx(expected, rel=0.05), name
            assert abs(float(parameter.detach().mean())) < 5 * expected / parameter.numel() ** 0.5


def test_logits_are_never_narrower_than_float32() -> None:
    tokens = random_tokens(1, 4)
    model = random_model(config())
    single = model(tokens)
    double = model.double()(tokens)
    assert (single.dtype, double.dtype) == (torch.float32, torch.float64)
    torch.testing.assert_close(single.double(), double, rtol=1e-5, atol=1e-5)
    assert model.bfloat16()(tokens).dtype == torch.float32


def test_a_model_without_a_vocabulary_is_refused() -> None:
    with pytest.raises(ArtifactError, match="vocabulary_size is not set"):
        Transformer(config(vocabulary_size=None))


def test_passes_with_caches_are_not_compiled() -> None:
    """Training compiles a model's blocks; sampling from the same model has other shapes at every step."""
    model, tokens = random_model(config()), random_tokens(1, 6)
    wanted = model.hidden(tokens)
    for block in model.blocks:
        block._compiled_call_impl = _refuse
    caches = model.make_caches(CacheShape(slots=1, length=8))
    with torch.no_grad():
        found = model.hidden(tokens, caches=caches, slots=torch.tensor([0]))
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
    with pytest.raises(AssertionError, match="compiled"):
        model.hidden(tokens)


def _refuse(*given: object) -> Tensor:
    raise AssertionError("compiled code was called")
