"""The engine against the full forward pass, which needs no cache, no slots and no batches."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from ingot.checkpoints.families.table import write_config
from ingot.inference.engine import Engine
from ingot.inference.request import Completion
from ingot.inference.sampling import Sampling
from ingot.model.config import ModelConfig
from ingot.model.transformer import Transformer
from ingot.workspace.errors import CheckFailed, IngotError
from tests.checkpoints.whole import written_tensors
from tests.inference.conftest import CONTEXT, VOCABULARY, mixed_config, reference_logprobs, tiny_config, tiny_model
from tests.slow import first_fast

TOLERANCE = 1e-5


def random_requests(count: int, seed: int, longest: int = 40) -> tuple[list[list[int]], list[Sampling]]:
    """Prompts of 1 to `longest` tokens, some of them equal or beginning alike, with all kinds of samplings."""
    generator = random.Random(seed)
    prompts: list[list[int]] = []
    for _ in range(count):
        fresh = [generator.randrange(VOCABULARY) for _ in range(generator.randint(1, longest))]
        old = generator.choice(prompts) if prompts else fresh
        prompts.append(generator.choice([fresh, old, (old + fresh)[:longest]]))
    samplings = [
        Sampling(
            max_new_tokens=generator.randint(1, 30),
            temperature=generator.choice([0.0, 0.7, 1.0, 1.5]),
            top_p=generator.choice([1.0, 1.0, 0.9]),
            top_k=generator.choice([0, 0, 7]),
            stop_tokens=(3, 4),
            seed=number,
        )
        for number in range(count)
    ]
    return prompts, samplings


def check_against_forward(
    model: Transformer, prompts: list[list[int]], samplings: list[Sampling], completions: list[Completion], length: int
) -> None:
    """Log-probabilities are those of the full pass, greedy tokens its best ones, and the ends are where they belong."""
    for prompt, sampling, completion in zip(prompts, samplings, completions, strict=True):
        tokens = completion.tokens
        expected = reference_logprobs(model, prompt, tokens, sampling.temperature)
        assert completion.logprobs == pytest.approx(expected, abs=TOLERANCE)
        if sampling.temperature == 0:
            best = model(torch.tensor([prompt + tokens]))[0, len(prompt) - 1 : -1].argmax(-1)
            assert tokens == best.tolist()
        room = min(sampling.max_new_tokens, length - len(prompt))
        stopped = tokens[-1] in sampling.stop_tokens
        assert not any(token in sampling.stop_tokens for token in tokens[:-1])
        assert completion.finish == ("stop" if stopped else "length")
        assert stopped or len(tokens) == room


@pytest.mark.parametrize("slots", first_fast([3, 40, 1, 8], 2))
@pytest.mark.parametrize("make_config", [tiny_config, mixed_config])
def test_decoding_equals_the_full_forward_pass(slots: int, make_config: Callable[[], ModelConfig]) -> None:
    model = tiny_model(make_config())
    prompts, samplings = random_requests(20, seed=slots)
    engine = Engine(model, slots=slots, length=50)
    check_against_forward(model, prompts, samplings, engine.complete(prompts, samplings), 50)
    # again, now that the slots hold what earlier requests left
    longer, samplings = [(prompt * 2)[:45] for prompt in prompts[::-1]], samplings[::-1]
    check_against_forward(model, longer, samplings, engine.complete(longer, samplings), 50)


@pytest.mark.parametrize("seed", first_fast(range(6), 2))
def test_requests_that_come_and_go_at_random(model: Transformer, seed: int) -> None:
    generator = random.Random(seed)
    prompts, samplings = random_requests(25, seed=100 + seed)
    engine = Engine(model, slots=generator.choice([2, 5, 16]), length=CONTEXT)
    requests = []
    cancelled = set()
    for prompt, sampling in zip(prompts, samplings, strict=True):
        requests.append(engine.submit(prompt, sampling))
        for _ in range(generator.randrange(4)):
            engine.step()
        if generator.random() < 0.15:
            victim = generator.choice(requests)
            if victim.finish is None:
                cancelled.add(id(victim))
            engine.cancel(victim)
    while any(request.finish is None and id(request) not in cancelled for request in requests):
        engine.step()
    for request in requests:
        if request.tokens:
            expected = reference_logprobs(model, request.prompt, request.tokens, request.sampling.temperature)
            assert request.logprobs == pytest.approx(expected, abs=TOLERANCE)


def test_the_text_of_a_request_does_not_depend_on_its_neighbours(model: Transformer) -> None:
    prompts, samplings = random_requests(30, seed=7)
    alone = [Engine(model, slots=1).complete([p], [s])[0] for p, s in zip(prompts, samplings, strict=True)]
    for slots in (4, 64):
        together = Engine(model, slots=slots).complete(prompts, samplings)
        assert [each.tokens for each in together] == [each.tokens for each in alone]
        for one, other in zip(together, alone, strict=True):
            assert one.logprobs == pytest.approx(other.logprobs, abs=TOLERANCE)
    order = random.Random(0).sample(range(30), 30)
    shuffled = Engine(model, slots=6).complete([prompts[i] for i in order], [samplings[i] for i in order])
    assert [each.tokens for each in shuffled] == [alone[i].tokens for i in order]


def test_seeds_differ_and_repeat(model: Transformer) -> None:
    engine = Engine(model, slots=8)
    samplings = [Sampling(max_new_tokens=20, seed=seed) for seed in range(8)]
    first = [each.tokens for each in engine.complete([[1, 2, 3]] * 8, samplings)]
    assert len(set(map(tuple, first))) == 8
    assert [each.tokens for each in engine.complete([[1, 2, 3]] * 8, samplings)] == first


class Passes:
    """Records the shape of every pass through the model."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shapes: list[tuple[int, int]] = []
        self.reaches: list[int] = []

        hidden = Transformer.hidden

        def recorded(model: Transformer, tokens_BT: Tensor, *args: Any, **options: Any) -> Tensor:
            if "caches" in options:  # not the full pass of `check_against_forward`
                self.shapes.append((tokens_BT.shape[0], tokens_BT.shape[1]))
                self.reaches.append(options["reach"])
            return hidden(model, tokens_BT, *args, **options)

        monkeypatch.setattr(Transformer, "hidden", recorded)

    @property
    def prefills(self) -> list[tuple[int, int]]:
        return [shape for shape in self.shapes if shape[1] > 1]


def test_equal_prompts_are_read_once(model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = Passes(monkeypatch)
    group = [[5] * 20] * 8 + [[6] * 20] * 8
    Engine(model, slots=16).complete(group, [Sampling(max_new_tokens=2, seed=seed) for seed in range(16)])
    # the first of each group reads all of it, the others only what is behind the last whole page
    assert passes.shapes == [(2, 19), (14, 8), (16, 1), (16, 1)]  # on a CPU a pass is as long as its longest row
    # a group larger than the engine: later requests find what earlier ones have read
    passes.shapes.clear()
    Engine(model, slots=4).complete(group[:8], [Sampling(max_new_tokens=2 + seed, seed=seed) for seed in range(8)])
    assert passes.prefills[0] == (1, 19) and {length for _, length in passes.prefills[1:]} == {8}


def test_the_next_turn_is_read_from_where_the_last_one_ended(
    model: Transformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = [[number + 1] * 20 for number in range(6)]
    samplings = [Sampling(max_new_tokens=4 + seed, seed=seed) for seed in range(6)]
    engine = Engine(model, slots=6)
    first = engine.complete(prompts, samplings)
    turns = [prompt + each.tokens + [9, 8, 7] for prompt, each in zip(prompts, first, strict=True)]
    passes = Passes(monkeypatch)
    second = engine.complete(turns, samplings)
    # the 16 tokens of the first turn's whole page are not read again
    assert sum(rows for rows, _ in passes.prefills) == 6 and max(length for _, length in passes.prefills) <= 16
    check_against_forward(model, turns, samplings, second, CONTEXT)
    engine.update(None, 1)  # keys and values of older weights are never used
    engine.complete(turns, samplings)
    assert sum(rows * length for rows, length in passes.prefills[1:]) >= sum(len(turn) - 1 for turn in turns)


def test_work_shrinks_as_requests_end(model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = Passes(monkeypatch)
    samplings = [Sampling(max_new_tokens=count) for count in (1, 3, 2)]
    Engine(model, slots=8).complete([[1], [2], [3]], samplings)
    assert passes.shapes == [(3, 1), (2, 1), (1, 1)]
    assert passes.reaches == [1, 2, 3]


def test_a_request_is_cut_where_the_slot_ends(model: Transformer) -> None:
    engine = Engine(model, slots=2, length=16)
    samplings = [Sampling(max_new_tokens=100, temperature=0.0)] * 3
    prompts = [[1] * 10, [1] * 15, [1] * 16]
    completions = engine.complete(prompts, samplings)
    assert [(len(each.tokens), each.finish) for each in completions] == [(6, "length"), (1, "length"), (0, "length")]
    check_against_forward(model, prompts[:2], samplings[:2], completions[:2], 16)


def test_stop_tokens_end_a_request_and_are_kept(model: Transformer) -> None:
    free = Engine(model, slots=1).complete([[1, 2]], [Sampling(max_new_tokens=20, seed=1)])[0]
    stop = free.tokens[9]
    ended = Engine(model, slots=1).complete([[1, 2]], [Sampling(max_new_tokens=20, seed=1, stop_tokens=(stop,))])[0]
    assert ended.finish == "stop"
    assert ended.tokens == free.tokens[: free.tokens.index(stop) + 1]


def test_greedy_text_equals_transformers(model: Transformer) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    family, values = write_config(model.config)
    tokens = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}
    reference = LlamaForCausalLM(LlamaConfig(**values | tokens)).eval()
    state = written_tensors(family.layout(model.config), model.state_dict())
    missing, unexpected = reference.load_state_dict(state, strict=False)
    assert missing == ["lm_head.weight"] and not unexpected
    reference.tie_weights()
    prompts, _ = random_requests(10, seed=11, longest=20)
    completions = Engine(model, slots=4).complete(prompts, [Sampling(max_new_tokens=40, temperature=0.0)] * 10)
    for prompt, completion in zip(prompts, completions, strict=True):
        ids = torch.tensor([prompt])
        theirs = reference.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=40, do_sample=False)
        assert completion.tokens == theirs[0, len(prompt) :].tolist()


def test_new_weights_in_the_middle_of_a_text(model: Transformer) -> None:
    before, after = tiny_model(seed=0), tiny_model(seed=1)
    engine = Engine(model, slots=2)
    prompts = [[number + 1] * 18 for number in range(3)]
    requests = [engine.submit(prompt, Sampling(max_new_tokens=9, seed=seed)) for seed, prompt in enumerate(prompts)]
    for _ in range(4):
        engine.step()
    engine.update(after.state_dict(), version=5, keep_caches=False)
    while any(request.finish is None for request in requests):
        engine.step()
    assert [request.versions for request in requests] == [[0] * 4 + [5] * 5] * 2 + [[5] * 9]
    for request in requests:
        cut = request.versions.count(0)
        old, new = request.tokens[:cut], request.tokens[cut:]
        expected = reference_logprobs(before, request.prompt, old, 1.0) if old else []
        expected += reference_logprobs(after, request.prompt + old, new, 1.0)
        assert request.logprobs == pytest.approx(expected, abs=TOLERANCE)


def test_weights_that_changed_without_update_are_found(model: Transformer) -> None:
    engine = Engine(model, slots=1)
    sampling = Sampling(max_new_tokens=2)
    with torch.no_grad():
        model.get_parameter("norm.gain").mul_(1.0)  # written, not changed
    assert engine.complete([[1]], [sampling])[0].versions == [0, 0]
    with torch.no_grad():
        model.get_parameter("norm.gain")[3] += 1e-6
    with pytest.raises(CheckFailed, match="changed without an update"):
        engine.complete([[1]], [sampling])
    with pytest.raises(CheckFailed, match="not those of version 0"):
        engine.stream([1], sampling)
    with pytest.raises(CheckFailed, match="changed without an update"):
        engine.submit([1], sampling)  # to an engine that is not busy
    engine.update(None, version=1)
    assert engine.complete([[1]], [sampling])[0].versions == [1, 1]


def test_a_copy_that_went_wrong_is_found(model: Transformer) -> None:
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.blocks[1].feed_forward = model.blocks[0].feed_forward  # one matrix under two names cannot hold two values
    with pytest.raises(CheckFailed, match="did not arrive"):
        Engine(model, slots=1).update(state, version=1)


def test_updates_that_cannot_be_are_refused(model: Transformer) -> None:
    engine = Engine(model, slots=1)
    state = dict(model.state_dict())
    with pytest.raises(IngotError, match=r"differ in 'norm\.gain'"):
        engine.update({name: tensor for name, tensor in state.items() if name != "norm.gain"}, 1)
    with pytest.raises(IngotError, match=r"norm\.gain has shape \(1,\), the model \(32,\)"):
        engine.update({**state, "norm.gain": torch.ones(1)}, 1)
    engine.update(state, 3)
    with pytest.raises(IngotError, match="version 2 after version 3"):
        engine.update(None, 2)


def test_streams_give_the_same_tokens_and_free_their_slot(model: Transformer) -> None:
    samplings = [Sampling(max_new_tokens=12, seed=seed) for seed in range(3)]
    expected = [each.tokens for each in Engine(model, slots=3).complete([[1], [2, 2], [3, 3, 3]], samplings)]
    engine = Engine(model, slots=3)
    streams = [engine.stream(prompt, s) for prompt, s in zip([[1], [2, 2], [3, 3, 3]], samplings, strict=True)]
    assert list(zip(*streams, strict=True)) == list(zip(*expected, strict=True))
    single = Engine(model, slots=1)
    stream = single.stream([1], samplings[0])
    assert next(stream) == expected[0][0]
    stream.close()
    assert single.complete([[2, 2]], [samplings[1]])[0].tokens == expected[1]


@pytest.mark.parametrize("moment", range(5))
def test_an_interrupted_call_leaves_nothing_behind(
    model: Transformer, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    sampling = Sampling(max_new_tokens=10, seed=1)
    prompts = [[1] * 20, [2] * 20]
    expected = [each.tokens for each in Engine(model, slots=2).complete(prompts, [sampling] * 2)]
    engine = Engine(model, slots=3)
    begun = engine.stream(prompts[0], sampling)
    first = [next(begun), next(begun)]
    waiting = engine.stream(prompts[1], sampling)  # joins in the step that is interrupted
    calls, hidden = iter(range(1000)), Transformer.hidden

    def interrupted(*args: Any, **options: Any) -> Tensor:
        if next(calls) == moment:
            raise KeyboardInterrupt
        return hidden(*args, **options)

    monkeypatch.setattr(Transformer, "hidden", interrupted)
    with pytest.raises(KeyboardInterrupt):
        engine.complete([[4] * 30, [5] * 3, [6]], [sampling] * 3)
    assert first + list(begun) == expected[0]
    assert list(waiting) == expected[1]
    assert [each.tokens for each in engine.complete(prompts, [sampling] * 2)] == expected


def test_weights_that_are_not_numbers_are_reported(model: Transformer) -> None:
    with torch.no_grad():
        model.get_parameter("norm.gain")[0] = float("nan")
    with pytest.raises(CheckFailed, match="logits are not finite"):
        Engine(model, slots=2).complete([[1], [2]], [Sampling(), Sampling(temperature=0.0)])


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ([], "prompt 1: the prompt is empty"),
        ([1] * 65, "prompt 1: the prompt has 65 tokens, the engine holds 64"),
        ([1, VOCABULARY], f"prompt 1: token {VOCABULARY} is not in the vocabulary of {VOCABULARY}"),
        ([-1, 1], "prompt 1: token -1 is not in the vocabulary"),
    ],
)
def test_impossible_prompts_are_refused(model: Transformer, prompt: list[int], said: str) -> None:
    with pytest.raises(IngotError, match=said):
        Engine(model, slots=1).complete([[1], prompt], [Sampling(), Sampling()])


def test_impossible_engines_are_refused(model: Transformer) -> None:
    with pytest.raises(IngotError, match="0 slots"):
        Engine(model, slots=0)
    with pytest.raises(IngotError, match="length 1"):
        Engine(model, length=1)
    with pytest.raises(IngotError, match="2 prompts but 1 samplings"):
        Engine(model, slots=1).complete([[1], [2]], [Sampling()])
