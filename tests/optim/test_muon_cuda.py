"""On a CUDA device: float16 iterations, compiled updates and fused attention's largest logits, against float64 on the CPU."""

from __future__ import annotations

import copy

import pytest
import torch

from ingot.model.mixers.attend import Backend, use_backend
from ingot.model.record import Record
from ingot.optim.adamw import AdamW
from ingot.optim.build import make_optimizer
from ingot.optim.config import MuonConfig
from ingot.optim.newton_schulz import orthogonalise, polynomials
from ingot.optim.qk_clip import clip_query_key
from tests.model.tiny import attention, config, random_model, random_tokens

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize("shape", [(256, 256), (1024, 1024), (1024, 4096), (4096, 1024), (1300, 2100)])
@pytest.mark.parametrize("kind", ["quintic", "polar_express"])
def test_orthogonalisation_in_sixteen_bits(shape: tuple[int, int], kind: str) -> None:
    stack = torch.randn(2, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 1e-7
    steps = polynomials(kind, 5)
    expected = orthogonalise(stack.cuda(), steps)  # float64 stays float64
    found = orthogonalise(stack.cuda().bfloat16(), steps)
    assert float((found - expected).norm() / expected.norm()) < 0.02
    assert found.isfinite().all()


def test_steps_agree_with_the_cpu_and_skipping_works() -> None:
    settings = MuonConfig.model_validate({"kind": "muon", "lr": 0.02, "epsilon": 1e-6, "split_heads": True})
    model = random_model(config(attention(query_key_value_bias=True), width=32))
    device = copy.deepcopy(model).cuda()
    ours, theirs = make_optimizer(device, settings), make_optimizer(model, settings)
    assert isinstance(ours, AdamW)
    start = {name: value.clone() for name, value in model.state_dict().items()}
    generator = torch.Generator().manual_seed(0)
    for step in range(4):
        skipped = step == 2
        for one, other in zip(device.parameters(), model.parameters(), strict=True):
            other.grad = torch.randn(other.shape, generator=generator)
            one.grad = (torch.full_like(other.grad, torch.nan) if skipped else 3 * other.grad).cuda()
        for group in (*ours.param_groups, *theirs.param_groups):
            group["lr"] = 0.02 / (1 + step)  # another rate in every step must not compile anew
        ours.grad_scale, ours.found_inf = torch.tensor(3.0).cuda(), torch.tensor(float(skipped)).cuda()
        ours.step()
        if not skipped:
            theirs.step()
    for name, value in model.state_dict().items():
        moved = float((value - start[name]).norm())
        assert float((device.state_dict()[name].cpu() - value).norm()) < 0.02 * moved, name


@pytest.mark.parametrize("backend", ["sdpa", "varlen", "flex", "blocks"])
def test_largest_logits_of_every_backend(backend: Backend) -> None:
    model = random_model(config(attention(head_width=16), attention(head_width=16, window=50))).cuda().bfloat16()
    tokens = random_tokens(2, 300).cuda()
    positions = torch.cat([torch.arange(200), torch.arange(100)]).expand(2, 300).cuda()
    documents = torch.tensor([0] * 200 + [1] * 60 + [-1] * 40).expand(2, 300).cuda()
    found = []
    for each in ("plain", backend):
        record = Record(want_logits=True)
        with use_backend(each):
            states = model.hidden(tokens, positions, documents, record=record)
        states.float().square().mean().backward()
        found.append(record.max_logits)
    for layer, maxima in found[0].items():
        torch.testing.assert_close(found[1][layer], maxima, rtol=0.03, atol=0.03)
    metrics = clip_query_key(model, found[1], float(found[0][0].max()) / 2)
    assert 0 < float(metrics["clipped_heads"]) <= 1
