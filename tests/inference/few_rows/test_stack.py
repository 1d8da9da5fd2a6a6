"""All layers in one call, against the full pass in float64 without caches; and which models go another way."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ingot.inference import forward
from ingot.inference.engine import Engine
from ingot.inference.few_rows import stack
from ingot.inference.few_rows.multiply import IS_ARM
from ingot.inference.sampling import Sampling
from ingot.inference.speculate.config import Speculation
from ingot.model.config import ModelConfig
from ingot.model.initialise import initialise
from ingot.model.team import openmp
from ingot.model.transformer import Transformer

pytestmark = pytest.mark.skipif(not IS_ARM or openmp() is None, reason="the loops are used on ARM with GNU's OpenMP")

VOCABULARY, LENGTH, NEW = 61, 96, 40
GROUPED = {"heads": 6, "key_value_heads": 2, "head_width": 16}
MIXERS: dict[str, dict[str, Any]] = {
    "grouped": GROUPED,
    "window": GROUPED | {"window": 7, "rope": {"pairing": "interleaved"}},
    "normed": {"heads": 4, "key_value_heads": 1, "head_width": 24, "query_key_norm": "head", "softcap": 5.0},
    "sinks": {"heads": 5, "key_value_heads": 5, "head_width": 32, "sinks": True, "rope": {"share": 0.5}, "chunk": 9},
    "unplaced": GROUPED | {"rope": None},
}


def make_model(mixer: dict[str, Any], **feed_forward: object) -> Transformer:
    layer = {"mixer": mixer, "feed_forward": {"width": 96, **feed_forward}}
    shape = {
        "vocabulary_size": VOCABULARY,
        "width": 64,
        "blocks": {"layer": layer},
        "layers": "layer*3",
        "context": LENGTH,
    }
    model = Transformer(ModelConfig.model_validate(shape | {"initial": {"std": 0.1, "depth_scaled": False}}))
    initialise(model, seed=0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name or "sinks" in name:  # which begin as ones or zeros
                parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)), alpha=0.3)
    return model


def sampled_with(
    model: Transformer, monkeypatch: pytest.MonkeyPatch, rows: int, **options: Any
) -> set[tuple[int, int]]:
    """Check the log-probabilities of an engine's texts; give the rows and tokens of the passes that went through the stack."""
    seen = set[tuple[int, int]]()

    def spy(blocks: Any, caches: Any, x_BTD: torch.Tensor, *more: Any) -> torch.Tensor:
        seen.add((x_BTD.shape[0], x_BTD.shape[1]))
        return stack.stack_states(blocks, caches, x_BTD, *more)

    monkeypatch.setattr(forward, "stack_states", spy)
    draws = torch.Generator().manual_seed(rows)
    prompts = [torch.randint(VOCABULARY, (2 + 3 * row,), generator=draws).tolist() for row in range(rows)]
    engine = Engine(model, slots=rows, length=LENGTH, **options)
    completions = engine.complete(prompts, [Sampling(max_new_tokens=NEW, seed=row) for row in range(rows)])
    exact = Transformer(model.config).double()
    exact.load_state_dict(model.state_dict())
    for prompt, completion in zip(prompts, completions, strict=True):
        with torch.no_grad():
            logits = exact(torch.tensor([prompt + list(completion.tokens)]))[0, len(prompt) - 1 : -1]
        expected = logits.log_softmax(-1)[range(len(completion.tokens)), list(completion.tokens)].tolist()
        assert list(completion.logprobs) == pytest.approx(expected, abs=5e-5)
    return seen


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("rows", [1, 3, 8, 13])
@pytest.mark.parametrize("name", MIXERS)
def test_texts_are_those_of_the_full_pass(name: str, rows: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert (rows, 1) in sampled_with(make_model(MIXERS[name]), monkeypatch, rows)
    finally:
        torch.set_num_threads(before)


def test_several_tokens_of_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = sampled_with(make_model(GROUPED), monkeypatch, 3, speculate=Speculation(tokens=4))
    assert any(tokens > 1 for _, tokens in seen)


@pytest.mark.parametrize(
    ("mixer", "feed_forward"),
    [
        (GROUPED | {"query_key_value_bias": True}, {}),
        (GROUPED | {"gate": {"form": "headwise"}}, {}),
        (GROUPED | {"temperature": {"floor": 5, "slope": 0.1}}, {}),
        (GROUPED | {"query_key_norm": "full"}, {}),
        (GROUPED, {"activation": "gelu"}),
        (GROUPED, {"width": 80}),  # no multiple of 32
    ],
    ids=["bias", "gate", "temperature", "full norm", "gelu", "width"],
)
def test_what_goes_the_way_of_the_modules(
    mixer: dict[str, Any], feed_forward: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not sampled_with(make_model(mixer, **feed_forward), monkeypatch, 3)


def test_hooks_are_called(monkeypatch: pytest.MonkeyPatch) -> None:
    model, calls = make_model(GROUPED), list[int]()
    hook = model.blocks[1].feed_forward.down.register_forward_hook(lambda *_: calls.append(1))  # type: ignore[union-attr]
    assert not sampled_with(model, monkeypatch, 2)
    assert calls
    hook.remove()


def test_many_rows_go_to_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack, "MOST_ROWS", 2)
    assert not sampled_with(make_model(GROUPED), monkeypatch, 3) & {(3, 1)}
