"""A divided engine on GPUs: one rank over NCCL, two that share a GPU over gloo, two GPUs over NCCL where there are two."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import pytest
import torch

from ingot.inference.checksum import weights_checksum
from ingot.inference.divided.group import EngineGroup
from ingot.inference.engine import Engine
from ingot.inference.sampling import Sampling
from ingot.model.config import ModelConfig
from ingot.model.initialise import initialise
from ingot.model.transformer import Transformer
from tests.inference.conftest import reference_logprobs
from tests.train.one_gpu import DENSE, MOE

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

HEADS = {"heads": 4, "key_value_heads": 2, "head_width": 64}
BLOCKS = {"dense": {**DENSE, "mixer": HEADS}, "moe": {**MOE, "mixer": {**MOE["mixer"], **HEADS}}}
CONFIG = ModelConfig.model_validate(
    {
        "vocabulary_size": 512,
        "width": 256,
        "blocks": BLOCKS,
        "layers": "dense moe dense",
        "context": 256,
        "initial": {"std": 0.1},
    }
)
PLACES = [
    pytest.param(["cuda:0"], "nccl", id="one rank"),
    pytest.param(["cuda:0", "cuda:0"], "gloo", id="one GPU"),
    pytest.param(
        ["cuda:0", "cuda:1"],
        "nccl",
        id="two GPUs",
        marks=pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
    ),
]


def make_model() -> Transformer:
    model = Transformer(CONFIG)
    initialise(model, seed=0)
    return model.eval()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("devices", "backend"), PLACES)
def test_log_probabilities_are_those_of_full_passes(
    devices: Sequence[str], backend: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float64, for the tokens that were drawn; in float32 to 1e-4. A step overlaps with the one before, as ever."""
    for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        monkeypatch.setenv(name, "lo")  # there is no other machine to be found on the network
    model = make_model()
    generator = torch.Generator().manual_seed(0)
    prompts = [torch.randint(512, (length,), generator=generator).tolist() for length in (3, 17, 60, 60)]
    group = EngineGroup(CONFIG, dtype, devices, backend=backend)
    with closing(Engine(group.model, slots=3, length=128)) as engine:
        engine.update(model.state_dict(), 1)
        assert engine.checksum == weights_checksum(make_model().to(dtype))
        found = engine.complete(prompts, [Sampling(temperature=1.0, max_new_tokens=30, seed=1)] * len(prompts))
    exact = make_model().to(dtype).double()  # of the same rounded weights
    for prompt, each in zip(prompts, found, strict=True):
        expected = torch.tensor(reference_logprobs(exact, prompt, each.tokens, 1.0))
        difference = (torch.tensor(each.logprobs) - expected).abs()
        if dtype == torch.float32:
            assert float(difference.max()) < 1e-4
        else:
            assert float(difference.mean()) < 0.05
