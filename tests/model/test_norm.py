"""RMS norm against the classes of transformers: the gain's three forms and both cast points, in float32 and bfloat16."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from transformers.models.gemma2.modeling_gemma2 import Gemma2RMSNorm
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssRMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.llama4.modeling_llama4 import Llama4TextL2Norm
from transformers.models.olmo2.modeling_olmo2 import Olmo2RMSNorm
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextRMSNorm

from ingot.model.norm import NormConfig, RmsNorm

WIDTH, EPSILON = 48, 0.03  # so large that a norm which ignores it is seen
BEFORE, AFTER = NormConfig(epsilon=EPSILON), NormConfig(epsilon=EPSILON, cast="after_gain")
CENTRED = NormConfig(epsilon=EPSILON, cast="after_gain", zero_centred=True)
PEERS: dict[str, tuple[type[nn.Module], NormConfig]] = {
    "llama": (LlamaRMSNorm, BEFORE),
    "olmo2": (Olmo2RMSNorm, AFTER),
    "gpt_oss": (GptOssRMSNorm, AFTER),
    "gemma2": (Gemma2RMSNorm, CENTRED),
    "qwen3_next": (Qwen3NextRMSNorm, CENTRED),
}


def pair(name: str, dtype: torch.dtype) -> tuple[RmsNorm, nn.Module]:
    """Our norm and theirs with the same random gain."""
    kind, config = PEERS[name]
    ours, theirs = RmsNorm(WIDTH, config), kind(WIDTH, eps=EPSILON)
    gain = torch.randn(WIDTH, generator=torch.Generator().manual_seed(1))
    ours.load_state_dict({"gain": gain})
    theirs.load_state_dict({"weight": gain})
    return ours.to(dtype), theirs.to(dtype)


def random(seed: int, dtype: torch.dtype) -> Tensor:
    return (3 * torch.randn(5, 7, WIDTH, generator=torch.Generator().manual_seed(seed))).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", PEERS)
def test_values_and_gradients_are_those_of_transformers_to_the_bit(name: str, dtype: torch.dtype) -> None:
    results = []
    for norm in pair(name, dtype):
        x = random(2, dtype).requires_grad_()
        y = norm(x)
        gradients = torch.autograd.grad((y * random(3, dtype)).sum(), [x, *norm.parameters()])
        results.append([y.detach(), *gradients])
    for ours, theirs in zip(*results, strict=True):
        assert ours.dtype == theirs.dtype == dtype
        assert torch.equal(ours, theirs), f"{(ours - theirs).abs().max()}"


def test_the_cast_point_is_seen_in_bfloat16_and_only_there() -> None:
    for dtype, same in ((torch.float32, True), (torch.bfloat16, False)):
        before, after = pair("llama", dtype)[0], pair("olmo2", dtype)[0]
        assert torch.equal(before(random(2, dtype)), after(random(2, dtype))) == same


def test_without_a_gain() -> None:
    x = random(2, torch.float32)
    norm = RmsNorm(WIDTH, BEFORE, gain=False)
    assert not list(norm.parameters())
    assert torch.equal(norm(x), Llama4TextL2Norm(EPSILON)(x))


@pytest.mark.parametrize("config", [BEFORE, CENTRED])
def test_float64_keeps_its_precision(config: NormConfig) -> None:
    norm, x = RmsNorm(WIDTH, config).double(), random(2, torch.float64)
    nn.init.normal_(norm.gain, generator=torch.Generator().manual_seed(1))  # type: ignore[arg-type]
    assert norm.gain is not None
    gain = norm.gain + 1 if config.zero_centred else norm.gain
    expected = x / ((x**2).mean(dim=-1, keepdim=True) + EPSILON).sqrt() * gain
    torch.testing.assert_close(norm(x), expected, rtol=1e-14, atol=1e-14)
