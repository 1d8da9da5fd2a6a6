"""Copies in 16 bits give the numbers of autocast, bit for bit, and leave no trace outside of a step's passes."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from ingot.model.transformer import Transformer
from ingot.tokens.batch import Batch
from ingot.tokens.batch import TokenSequence as Text
from ingot.tokens.packing import make_batch
from ingot.train import bf16_copies
from ingot.train.batches import split_rows
from ingot.train.losses.terms import CrossEntropy
from ingot.train.passes import Objective, Passes
from tests.model.minis import MINIS, few_layers
from tests.model.tiny import mixed_config, random_model
from tests.slow import first_fast

CPU = torch.device("cpu")
PARTS = (
    "deepseek-v3.2",
    "falcon-h1-0.5b",
    "gpt-oss-20b",
    "kimi-linear-48b-a3b",
    "llama4-scout",
    "minimax-m1",
    "nemotron-h-8b",
)
"""Miniatures that have every kind of part between them."""
pytestmark = pytest.mark.filterwarnings("ignore:TF32 acceleration")


@pytest.fixture(autouse=True)
def plain_products() -> Iterator[None]:
    """oneDNN emulates 16 bits where the CPU has none, and slowly."""
    with torch.backends.mkldnn.flags(enabled=False):
        yield


def batches_of(vocabulary: int, passes: int) -> list[Batch]:
    rng = random.Random(5)
    texts = [[rng.randrange(vocabulary) for _ in range(length)] for length in (9, 5, 12, 3, 8, 11)]
    packed = make_batch([Text(text, {"weight": [1.0] * len(text)}) for text in texts], 16)
    return split_rows(packed, -(-len(packed.tokens) // passes))


def run(model: Transformer, passes: Passes, micro: int) -> tuple[Tensor, dict[str, Tensor | None]]:
    """The loss and all gradients of a step of `micro` passes."""
    model.zero_grad(set_to_none=True)
    given = batches_of(model.config.vocabulary_size or 0, micro)
    tokens = torch.tensor(float(sum(batch.token_count for batch in given)))
    count = torch.stack([CrossEntropy().denominator(batch.streams) for batch in given]).sum()
    sums = passes.run(given, {CrossEntropy().name: count}, tokens)
    return sums.parts["loss"], {name: each.grad for name, each in model.named_parameters()}


def passes_of(model: Transformer) -> Passes:
    return Passes(model, Objective([CrossEntropy()]), CPU, torch.float16)


@pytest.mark.parametrize(
    ("name", "micro"), first_fast([("mixed", 3), *((f"{name}-mini", 2) for name in PARTS), ("mixed", 1)], 4)
)
def test_gradients_are_those_of_autocast(name: str, micro: int) -> None:
    config = mixed_config() if name == "mixed" else few_layers(MINIS[name]).model_copy(update={"vocabulary_size": 96})
    model = random_model(config, scale=0.05)
    ours, plain = passes_of(model), passes_of(model)
    plain.copies = None
    loss, gradients = run(model, ours, micro)
    expected_loss, expected = run(model, plain, micro)
    assert torch.equal(loss, expected_loss)
    for parameter, gradient in gradients.items():
        other = expected[parameter]
        assert (gradient is None) == (other is None), parameter
        if gradient is not None and other is not None:
            assert gradient.dtype == torch.float32
            assert torch.equal(gradient, other), parameter


def test_a_step_leaves_the_model_as_it_was() -> None:
    """Whoever reads the model between steps sees float32 weights, and the next step sees what became of them."""
    model = random_model(mixed_config())
    passes = passes_of(model)
    names = set(model.state_dict())
    before, _ = run(model, passes, 1)
    assert all("weight_copy" not in vars(module) for module in model.modules())
    assert set(model.state_dict()) == names
    with torch.no_grad():
        model.blocks[0].get_parameter("feed_forward.down.weight").mul_(3)
    after, _ = run(model, passes, 1)
    plain = passes_of(model)
    plain.copies = None
    expected, _ = run(model, plain, 1)
    assert not torch.equal(before, after)
    assert torch.equal(after, expected)


def test_frozen_weights_get_no_gradient() -> None:
    model = random_model(mixed_config())
    frozen = model.blocks[1].get_parameter("feed_forward.down.weight").requires_grad_(False)
    _, gradients = run(model, passes_of(model), 2)
    assert frozen.grad is None
    assert sum(gradient is None for gradient in gradients.values()) == 1


def test_what_a_broken_pass_left_is_not_found_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model(mixed_config())
    passes = passes_of(model)
    _, expected = run(model, passes, 1)
    kept = {name: gradient.clone() for name, gradient in expected.items() if gradient is not None}

    def fail(*_: object) -> Tensor:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(bf16_copies, "add_gradient", fail)
        with pytest.raises(MemoryError):
            run(model, passes, 1)
    _, again = run(model, passes, 1)
    for name, gradient in again.items():
        assert gradient is not None and torch.equal(gradient, kept[name]), name
