"""The engine over every architecture, against full forward passes without a cache.

Models are float64 with large random weights: texts depend strongly on every token before, and a router or an indexer that
chooses by a hair chooses the same in both. Windows, chunks and key selection are made so short that these texts exceed them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch

from ingot.inference.engine import Engine
from ingot.inference.request import Request
from ingot.inference.sampling import Sampling
from ingot.kernels.linear.chunks import CHUNK
from ingot.model.config import ModelConfig
from ingot.model.initialise import initialise
from ingot.model.mixers.cache import CacheShape
from ingot.model.transformer import Transformer
from ingot.workspace.errors import CheckFailed
from tests.inference.conftest import reference_logprobs
from tests.inference.test_engine import Passes
from tests.model.minis import MINIS, covering_fast, few_layers

VOCABULARY = 61
LENGTH = 96
SHORT = {"window": 7, "chunk": 8, "keep": 6, "floor": 5}
TOLERANCE = 1e-8
RECURRENT = {"lightning", "gated_delta", "kda", "mamba2", "parallel"}


def short_mini(name: str) -> ModelConfig:
    """The miniature with limits that matter in a text of `LENGTH` tokens and a context of that length."""
    shape = _shortened(few_layers(MINIS[name]).model_dump())
    initial = {"std": 0.1, "depth_scaled": False}
    return ModelConfig.model_validate(
        shape | {"vocabulary_size": VOCABULARY, "context": LENGTH, "multi_token": None, "initial": initial}
    )


def _shortened(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    changed = {key: SHORT[key] if key in SHORT and inner else _shortened(inner) for key, inner in value.items()}
    # sixteen indexer heads: with few, keys that none of them likes tie at a score of zero, and any of them may be chosen
    return changed | {"heads": 16} if "keep" in value else changed


def make_model(config: ModelConfig, seed: int = 0) -> Transformer:
    model = Transformer(config)
    initialise(model, seed)
    return model.double()


def recurrent(config: ModelConfig) -> bool:
    return any(block.mixer is not None and block.mixer.kind in RECURRENT for block in config.blocks.values())


def text(length: int, seed: int) -> list[int]:
    return torch.randint(VOCABULARY, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


def finish(engine: Engine, requests: Sequence[Request]) -> None:
    while any(request.finish is None for request in requests):
        engine.step()


def check(model: Transformer, requests: Sequence[Request]) -> None:
    """Greedy tokens are the best ones of the full pass, and log-probabilities are those of the full pass."""
    for request in requests:
        with torch.no_grad():
            logits = model(torch.tensor([request.context]))[0, len(request.prompt) - 1 : -1]
        if request.sampling.temperature == 0:
            assert request.tokens == logits.argmax(-1).tolist()
        table = logits.double().log_softmax(-1)
        expected = [float(row[token]) for row, token in zip(table, request.tokens, strict=True)]
        assert request.logprobs == pytest.approx(expected, abs=TOLERANCE)
        assert len(request.tokens) == request.limit


@pytest.mark.parametrize("name", covering_fast(MINIS))
def test_text_equals_the_full_forward_pass(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Uneven prompts, more requests than slots, shared prompts, next turns, and new weights in between."""
    config = short_mini(name)
    model = make_model(config)
    engine = Engine(model, slots=3, length=LENGTH)
    long, middle, one = text(CHUNK + 6, 1), text(23, 2), text(1, 3)
    samplings = [Sampling(max_new_tokens=count, temperature=count % 2, seed=count) for count in (6, 9, 4, 5, 8, 7)]

    requests = [engine.submit(prompt, samplings[number]) for number, prompt in enumerate((middle, one))]
    engine.step()
    engine.step()
    # while the first two run: the same prompt again, one that goes on from it, and one that waits for a slot
    later = [middle, middle + text(8, 4), long, middle]
    requests += [engine.submit(prompt, sampling) for prompt, sampling in zip(later, samplings[2:], strict=True)]
    finish(engine, requests)
    check(model, requests)

    # the next turns of three conversations, the last of which is still in its slot
    passes = Passes(monkeypatch)
    last = requests[-1]
    turns = [request.context + text(3 + row, row) for row, request in enumerate((requests[0], requests[3], last))]
    second = [engine.submit(turn, samplings[row]) for row, turn in enumerate(turns)]
    finish(engine, second)
    monkeypatch.undo()
    check(model, second)
    # at least one was read from where it had stopped, or from its last whole page
    assert min(length for _, length in passes.prefills) <= 16

    # new weights after two steps: what was read and sampled is read again with them
    third = [
        engine.submit(prompt, sampling) for prompt, sampling in zip((middle, middle, one), samplings, strict=False)
    ]
    engine.step()
    engine.step()
    before = make_model(config)
    engine.update(make_model(config, seed=1).state_dict(), version=1, keep_caches=False)
    finish(engine, third)
    for request in third:
        old, new = request.tokens[:2], request.tokens[2:]
        expected = reference_logprobs(before, request.prompt, old, 1.0)
        expected += reference_logprobs(model, request.prompt + old, new, 1.0)
        assert request.logprobs == pytest.approx(expected, abs=TOLERANCE)
        assert request.versions == [0] * 2 + [1] * len(new)


@pytest.mark.parametrize("name", covering_fast([name for name in MINIS if recurrent(MINIS[name])]))
def test_a_state_is_kept_where_its_prompt_ended(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests with the prompt of one that is already under way go on from the state at the prompt's end."""
    model = make_model(short_mini(name))
    engine = Engine(model, slots=4, length=LENGTH)
    prompt = text(20, 5)
    passes = Passes(monkeypatch)
    requests = [engine.submit(prompt, Sampling(max_new_tokens=6, seed=seed)) for seed in range(2)]
    engine.step()
    assert passes.prefills == [(1, 19)]
    requests.append(engine.submit(prompt, Sampling(max_new_tokens=6, temperature=0.0)))
    finish(engine, requests)
    assert passes.prefills == [(1, 19)]
    monkeypatch.undo()
    check(model, requests)


@pytest.mark.parametrize("name", covering_fast([name for name in MINIS if recurrent(MINIS[name])]))
def test_padding_of_a_prompt_leaves_states_alone(name: str) -> None:
    """The token after a padded prompt gets the state of the prompt alone."""
    model = make_model(short_mini(name))
    lengths, slots = torch.tensor([5, 12, 9]), torch.arange(3)
    tokens = torch.tensor([text(12, row) for row in range(3)])  # those after a row's length are padding here
    caches = model.make_caches(CacheShape(slots=3, length=LENGTH))
    positions = torch.arange(12).expand(3, -1)
    with torch.no_grad():
        model.hidden(tokens, positions, caches=caches, slots=slots, lengths=lengths, reach=12)
        nexts = model.hidden(tokens[:, :1], lengths[:, None], caches=caches, slots=slots, reach=13)
        for row, length in enumerate(lengths.tolist()):
            whole = torch.cat((tokens[row, :length], tokens[row, :1]))
            torch.testing.assert_close(nexts[row, 0], model.hidden(whole[None])[0, -1], atol=1e-10, rtol=0)


def test_a_selection_bias_that_moved_without_update_is_found() -> None:
    """A router's bias is no parameter, and yet it decides which experts a token goes to."""
    model = make_model(short_mini("minimax-m2-mini"))
    engine = Engine(model, slots=1, length=LENGTH)
    biases = [buffer for name, buffer in model.named_buffers() if name.endswith("selection_bias")]
    biases[0][3] += 0.1
    with pytest.raises(CheckFailed, match="changed without an update"):
        engine.complete([[1]], [Sampling(max_new_tokens=1)])
