"""Texts with speculation are those without it, token by token, and have the distribution of the full forward pass."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
import torch
from scipy import stats

from ingot.inference.engine import Engine
from ingot.inference.request import Request
from ingot.inference.sampling import Sampling
from ingot.inference.speculate.config import Speculation
from ingot.inference.structure.constraint import compile_choice
from ingot.model.transformer import Transformer
from ingot.workspace.errors import IngotError
from tests.inference.conftest import VOCABULARY, tiny_config, tiny_model
from tests.inference.speculate.oracle import bytes_of, with_oracle
from tests.inference.test_engine import check_against_forward, random_requests
from tests.inference.test_engine_mixers import LENGTH, check, finish, make_model, short_mini, text
from tests.serve.speaker import train_small_tokenizer
from tests.slow import first_fast

KINDS = (
    "llama-3.1-8b-mini",  # keys and values in pages
    "qwen3-next-80b-a3b-mini",  # recurrent states
    "gemma3-4b-mini",  # rings
    "deepseek-r1-mini",  # latents, experts
    "falcon-h1-0.5b-mini",  # states and pages in one layer
)


@pytest.mark.parametrize("name", first_fast(KINDS, 2))
def test_any_architecture_under_pressure(name: str) -> None:
    """Right and wrong drafts, joining and leaving, few pages: texts are those of the full pass, and nothing is leaked."""
    model, chance = make_model(short_mini(name)), random.Random(1)
    prompts = [text(size, size) for size in (1, 15, 30, 17, 33)]
    prompts += [prompts[3] + text(9, 9), prompts[2]]
    samplings = [Sampling(max_new_tokens=25 + seed, temperature=seed % 2, seed=seed) for seed in range(7)]
    plain = Engine(model, slots=4, length=LENGTH).complete(prompts, samplings)
    engine = with_oracle(
        model, prompts, samplings, plain, slots=4, length=LENGTH, chunk=32, cache_bytes=bytes_of(model, 10, LENGTH)
    )
    requests: list[Request] = []
    for prompt, sampling in zip(prompts, samplings, strict=True):
        requests.append(engine.submit(prompt, sampling))
        for _ in range(chance.randint(0, 3)):
            engine.step()
    finish(engine, requests)
    assert [request.tokens for request in requests] == [one.tokens for one in plain]
    check(model, requests)
    counted = engine.stats
    assert counted.preemptions > 0 and counted.drafted_tokens > counted.accepted_tokens > 50
    engine.update(None, 1)
    assert engine.stats.pages_used == 0


def test_frequencies_that_change_with_the_length() -> None:
    """LongRoPE turns the tokens of a pass by the length after it: a pass with drafts must not reach over the border."""
    model = make_model(short_mini("phi-4-mini-mini"))
    prompts, samplings = [text(20, 1), text(21, 2)], [Sampling(max_new_tokens=60, seed=seed) for seed in range(2)]
    plain = Engine(model, slots=2, length=LENGTH).complete(prompts, samplings)
    engine = with_oracle(model, prompts, samplings, plain, slots=2, length=LENGTH)
    for one, other in zip(engine.complete(prompts, samplings), plain, strict=True):
        assert one.tokens == other.tokens
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-8)
    assert engine.stats.accepted_tokens > 50


def test_all_samplings_in_float32(model: Transformer) -> None:
    """Greedy and drawn, truncated, stopped and cut off inside a run of accepted drafts."""
    prompts, samplings = random_requests(60, seed=3)
    plain = Engine(model, slots=8).complete(prompts, samplings)
    engine = with_oracle(model, prompts, samplings, plain, slots=8)
    completions = engine.complete(prompts, samplings)
    assert [(one.tokens, one.finish) for one in completions] == [(one.tokens, one.finish) for one in plain]
    for one, other in zip(completions, plain, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)
    check_against_forward(model, prompts, samplings, completions, engine.length)
    counted = engine.stats
    assert counted.accepted_tokens > 100
    assert counted.generated_tokens == sum(len(one.tokens) for one in completions)
    assert {one.finish for one in completions} == {"stop", "length"}


def test_ngrams_shorten_a_text_that_repeats_itself(model: Transformer) -> None:
    """A greedy text of a small random model runs in a circle: most of it is accepted."""
    prompt, sampling = text(9, 1), Sampling(max_new_tokens=50, temperature=0.0)
    plain = Engine(model, slots=1).complete([prompt], [sampling])[0]
    engine = Engine(model, slots=1, speculate=Speculation("auto", tokens=6, shortest=1))
    assert engine.complete([prompt], [sampling])[0].tokens == plain.tokens
    assert engine.stats.accepted_tokens > 10
    assert engine.stats.steps <= 50 - engine.stats.accepted_tokens


def test_what_a_request_asks_for_beside_its_text(model: Transformer) -> None:
    """The likeliest tokens and the kept sets of every step, least lengths, biases; penalties go without drafts."""
    options: list[dict[str, object]] = [
        {"top_logprobs": 3},
        {"keep_set": True, "top_p": 0.7},
        {"min_new_tokens": 12, "stop_tokens": tuple(range(0, 97, 3))},
        {"logit_bias": ((5, 3.0),), "raw_logprobs": True, "temperature": 0.5},
        {"allowed_tokens": (1, 2, 3, 4)},
        {"frequency_penalty": 1.0, "repetition_penalty": 1.3},
        {"presence_penalty": 2.0, "temperature": 0.0},
    ]
    samplings = [Sampling(max_new_tokens=20, seed=seed, **each) for seed, each in enumerate(options)]  # type: ignore[arg-type]
    prompts = [[token % VOCABULARY for token in text(6, seed)] for seed in range(len(options))]
    plain = Engine(model, slots=8).complete(prompts, samplings)
    engine = with_oracle(model, prompts, samplings, plain, slots=8)
    for one, other in zip(engine.complete(prompts, samplings), plain, strict=True):
        assert one.tokens == other.tokens and one.kept == other.kept
        assert [[token for token, _ in step] for step in one.top_logprobs] == [
            [token for token, _ in step] for step in other.top_logprobs
        ]
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)
    assert engine.stats.accepted_tokens > 20


def test_constraints_and_stop_strings() -> None:
    tokenizer = train_small_tokenizer()
    model = tiny_model(tiny_config().model_copy(update={"vocabulary_size": tokenizer.vocabulary_size}))
    model.tokenizer = tokenizer
    free = Sampling(max_new_tokens=30, temperature=0.0)
    prompts = [tokenizer.encode("the sum"), tokenizer.encode("numbers"), tokenizer.encode("of the")]
    shown = tokenizer.decode(Engine(model, slots=1).complete(prompts[:1], [free])[0].tokens)
    samplings = [
        Sampling(max_new_tokens=30, temperature=0.0, stop_strings=(shown[9:11],)),
        Sampling(max_new_tokens=30, constraint=compile_choice(["the numbers", "the sum of it"], tokenizer)),
        Sampling(max_new_tokens=30, seed=2),
    ]
    plain = Engine(model, slots=3).complete(prompts, samplings)
    assert plain[0].finish == "stop" and tokenizer.decode(plain[1].tokens) in ("the numbers", "the sum of it")
    engine = with_oracle(model, prompts, samplings, plain, slots=3)
    completions = engine.complete(prompts, samplings)
    assert [(one.tokens, one.finish) for one in completions] == [(one.tokens, one.finish) for one in plain]
    assert engine.stats.accepted_tokens > 10


def test_distribution_and_rate_of_acceptance() -> None:
    """3,000 texts of three tokens: chi-squared against exact probabilities, and drafts hold as often as p(draft)."""
    model = make_model(tiny_config().model_copy(update={"vocabulary_size": 4}))
    prompt, size = [0, 1, 2, 3, 0, 1], 3000
    engine = Engine(model, slots=250, length=16, speculate=Speculation("ngram", tokens=2, shortest=1))
    samplings = [Sampling(max_new_tokens=3, seed=seed, temperature=0.8) for seed in range(size)]
    seen = Counter(tuple(one.tokens) for one in engine.complete([prompt] * size, samplings))
    texts = list(itertools.product(range(4), repeat=3))
    with torch.no_grad():
        logits = model(torch.tensor([prompt + list(each) for each in texts]))[:, len(prompt) - 1 : -1]
    table = (logits / 0.8).softmax(-1).gather(-1, torch.tensor(texts)[..., None])[..., 0]
    expected = (table.prod(-1) * size).tolist()
    few = [index for index, each in enumerate(expected) if each < 5]
    many = [index for index, each in enumerate(expected) if each >= 5]
    observed = [seen[texts[index]] for index in many] + [sum(seen[texts[index]] for index in few)]
    assert (
        stats.chisquare(observed, [expected[index] for index in many] + [sum(expected[i] for i in few)]).pvalue > 1e-3
    )
    # the first drafts of every text are 2 3: both follow 0 1 in the prompt
    both = float(table[texts.index((2, 3, 0))][:2].prod())
    held = sum(count for each, count in seen.items() if each[:2] == (2, 3))
    assert stats.binomtest(held, size, both).pvalue > 1e-3
    assert engine.stats.accepted_tokens >= 2 * held > 0


def test_seeds_and_neighbours_do_not_matter(model: Transformer) -> None:
    prompts = [[token % VOCABULARY for token in text(7, 1)]] * 6
    samplings = [Sampling(max_new_tokens=25, seed=seed, temperature=0.3) for seed in range(6)]
    together = Engine(model, slots=6, speculate=Speculation(shortest=1)).complete(prompts, samplings)
    for prompt, sampling, one in zip(prompts, samplings, together, strict=True):
        alone = Engine(model, slots=1, speculate=Speculation(tokens=1)).complete([prompt], [sampling])[0]
        assert alone.tokens == one.tokens


def test_new_weights_between_two_steps() -> None:
    """Tokens are stamped with the weights that drew them, runs of several included."""
    model, other = tiny_model(seed=0), tiny_model(seed=1)
    prompt, sampling = [5, 6] * 5, Sampling(max_new_tokens=40, temperature=0.0)
    engine = Engine(model, slots=1, speculate=Speculation(shortest=1))
    request = engine.submit(prompt, sampling)
    while len(request.tokens) < 12:
        engine.step()
    before = list(request.tokens)
    engine.update(other.state_dict(), version=3, keep_caches=False)
    finish(engine, [request])
    assert request.versions == [0] * len(before) + [3] * (40 - len(before))
    rest = Sampling(max_new_tokens=40 - len(before), temperature=0.0)
    assert request.tokens[len(before) :] == Engine(other, slots=1).complete([prompt + before], [rest])[0].tokens


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"kind": "mtp"}, "no multi-token module"),
        ({"tokens": 0}, "tokens is 0"),
        ({"longest": 2, "shortest": 3}, "shortest is 3"),
        ({"kind": "medusa"}, "kind is medusa"),
    ],
)
def test_what_is_refused(model: Transformer, options: dict[str, object], problem: str) -> None:
    with pytest.raises(IngotError, match=problem):
        Engine(model, speculate=Speculation(**options))  # type: ignore[arg-type]
